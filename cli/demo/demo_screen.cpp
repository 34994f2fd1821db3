#include "cli/demo/demo_screen.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/report/number_text.hpp"

namespace skein::cli {
namespace {

constexpr int kColumnsMin = 40;
constexpr int kRowsMin = 12;
constexpr int kBarColumnsMax = 40;
/// Terminals with more rows get a taller loss curve.
constexpr int kTallRows = 34;

enum class Paint { kPlain, kBold, kDim, kTrouble, kGood };

/// Chooses the escape codes, or none.
class Painter {
 public:
  explicit Painter(GridColours colours) : colours_(colours) {}
  std::string operator()(Paint paint, const std::string& text) const {
    if (colours_ == GridColours::kNone || paint == Paint::kPlain || text.empty()) return text;
    const char* code = paint == Paint::kBold      ? "1"
                       : paint == Paint::kDim     ? "2"
                       : paint == Paint::kTrouble ? "1;31"
                                                  : "1;32";
    return absl::StrCat("\033[", code, "m", text, "\033[0m");
  }

 private:
  GridColours colours_;
};

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

/// The first `columns` columns of a line, whose escape codes take none.
std::string clip(const std::string& line, int columns) {
  std::string text;
  int used = 0;
  bool in_escape = false, has_escape = false;
  for (const char byte : line) {
    if (byte == '\033') in_escape = has_escape = true;
    if (!in_escape && begins_character(byte) && ++used > columns) break;
    text.push_back(byte);
    if (in_escape && byte == 'm') in_escape = false;
  }
  if (used > columns && has_escape) text += "\033[0m";
  return text;
}

std::string repeated(const char* text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string title_line(const DemoView& view, const DemoScreenOptions& options) {
  const Painter paint(options.colours);
  const std::string left = absl::StrCat("skein demo  ", clock_text(view.seconds), " of ",
                                        clock_text(view.seconds_planned), "  ", view.phase);
  const int gap = options.columns - static_cast<int>(left.size() + options.hint.size());
  return absl::StrCat(paint(Paint::kBold, left), std::string(std::max(2, gap), ' '),
                      paint(Paint::kDim, options.hint));
}

std::string plan_summary(const DemoView& view) {
  if (view.schedule.empty()) return "pipeline: not planned yet";
  std::string text = absl::StrCat(view.model, ", ", view.schedule);
  if (view.gain > 0) {
    absl::StrAppendFormat(&text, ", predicted %.2fx an even split", view.gain);
  }
  return text;
}

/// Means of the losses, a column each; the newest in the last one.
std::vector<double> columns_of(const std::vector<double>& losses, size_t columns) {
  if (losses.size() <= columns) return losses;
  std::vector<double> means(columns, 0);
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = c * losses.size() / columns;
    const size_t end = (c + 1) * losses.size() / columns;
    for (size_t i = begin; i < end; ++i) means[c] += losses[i] / static_cast<double>(end - begin);
  }
  return means;
}

/// "   ^w3 lost": each mark below the column of its step, if there is room.
std::string mark_line(const DemoView& view, size_t columns) {
  const size_t steps = view.losses.size();
  std::string text;
  for (const DemoMark& mark : view.marks) {
    if (steps == 0 || mark.step == 0) continue;
    const size_t index = std::min<size_t>(mark.step, steps) - 1;
    const size_t column = steps <= columns ? index : index * columns / steps;
    const bool fits = column + 1 + mark.text.size() <= columns;  // Else it stands before its step.
    const size_t begin = fits ? column : column - std::min(column, mark.text.size());
    if (begin < text.size()) continue;
    text.resize(begin, ' ');
    absl::StrAppend(&text, fits ? "^" : "", mark.text, fits ? " " : "^");
  }
  return text;
}

std::vector<std::string> loss_lines(const DemoView& view, const DemoScreenOptions& options,
                                    int height) {
  constexpr std::array<const char*, 9> kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr int kLabelColumns = 7;  // "5.55 "
  if (view.losses.empty()) return {};
  const auto columns = static_cast<size_t>(options.columns - kLabelColumns);
  const std::vector<double> means = columns_of(view.losses, columns);
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  const double range = std::max(*high - *low, 1e-9);
  std::vector<std::string> lines;
  for (int row = height - 1; row >= 0; --row) {
    const std::string label = row == height - 1 ? absl::StrFormat("%5.2f  ", *high)
                              : row == 0        ? absl::StrFormat("%5.2f  ", *low)
                                                : std::string(kLabelColumns, ' ');
    std::string line = label;
    for (const double mean : means) {
      // The lowest one is seen, too.
      const double eighths = 1 + (mean - *low) / range * (8 * height - 1);
      const auto level = std::clamp(static_cast<int>(std::lround(eighths)) - 8 * row, 0, 8);
      line += kEighths[static_cast<size_t>(level)];
    }
    lines.push_back(line);
  }
  const std::string marks = mark_line(view, columns);
  lines.insert(lines.begin(), "loss, step by step");
  if (!marks.empty()) lines.push_back(std::string(kLabelColumns, ' ') + marks);
  return lines;
}

std::string event_line(const DemoEvent& event, const DemoScreenOptions& options) {
  const Paint paint = event.is_trouble ? Paint::kTrouble
                      : event.is_good  ? Paint::kGood
                                       : Paint::kPlain;
  return absl::StrCat(clock_text(event.seconds), "  ", Painter(options.colours)(paint, event.text));
}

std::string worker_line(const DemoWorker& worker, const DemoScreenOptions& options, int64_t most) {
  const Painter paint(options.colours);
  std::string head = absl::StrFormat("w%-3d", worker.number);
  absl::StrAppend(&head, worker.speed > 0 ? absl::StrFormat("speed %4.2f  ", worker.speed)
                                          : std::string("            "));
  if (worker.is_lost) return paint(Paint::kTrouble, head + "lost");
  if (worker.layers == 0) return head + paint(Paint::kDim, "no work yet");
  const int room = std::clamp(options.columns - 40, 8, kBarColumnsMax);
  const int unit = std::max<int>(1, room / static_cast<int>(std::max<int64_t>(1, most)));
  const auto length = std::min<int>(room, unit * static_cast<int>(worker.layers));
  std::string bar = repeated("█", length);
  bar += std::string(static_cast<size_t>(std::max(0, room - length)), ' ');
  return absl::StrCat(
      head, bar, absl::StrFormat(" %2d %s", worker.layers, worker.layers == 1 ? "layer" : "layers"),
      worker.stages.size() == 1 ? ", stage " : ", stages ", absl::StrJoin(worker.stages, " "));
}

void add(std::vector<std::string>& to, std::vector<std::string> lines) {
  to.insert(to.end(), std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds));
  return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
}

std::string status_line(const DemoView& view) {
  int64_t working = 0;
  for (const DemoWorker& worker : view.workers) working += worker.layers > 0 && !worker.is_lost;
  std::string text = absl::StrFormat("step %d", view.step);
  if (!view.losses.empty()) absl::StrAppendFormat(&text, " | loss %.3f", view.losses.back());
  if (view.tokens_per_second > 0) {
    absl::StrAppend(&text, " | ", with_commas(static_cast<uint64_t>(view.tokens_per_second)),
                    " tokens/s");
  }
  absl::StrAppend(&text, " | ", working, " workers | generation ", view.generation);
  return text;
}

std::string plan_line(const DemoView& view) {
  std::vector<std::string> shares, names;
  for (const DemoWorker& worker : view.workers) {
    if (worker.layers == 0 || worker.is_lost) continue;
    shares.push_back(absl::StrCat(worker.layers));
    names.push_back(absl::StrCat("w", worker.number));
  }
  std::string text = absl::StrCat("plan ", view.generation, ": ", absl::StrJoin(shares, " + "),
                                  " layers on ", absl::StrJoin(names, " "));
  if (view.gain > 0) absl::StrAppendFormat(&text, ", predicted %.2fx an even split", view.gain);
  return text;
}

std::vector<std::string> timeline_lines(const DemoView& view, const DemoScreenOptions& options) {
  if (view.timeline.rows.empty()) return {};
  Picture picture = view.timeline;
  picture.title.clear();
  const std::string grid = terminal_grid(picture, {options.columns, options.colours});
  std::vector<std::string> lines = absl::StrSplit(grid, '\n', absl::SkipEmpty());
  lines.front() = absl::StrFormat("what each worker did in step %d", view.timeline_step);
  return lines;
}

std::vector<std::string> pipeline_lines(const DemoView& view, const DemoScreenOptions& options) {
  int64_t most = 1;
  for (const DemoWorker& worker : view.workers) most = std::max(most, worker.layers);
  std::vector<std::string> lines;
  for (const DemoWorker& worker : view.workers) {
    lines.push_back(worker_line(worker, options, most));
  }
  return lines;
}

std::vector<std::string> demo_screen(const DemoView& view, const DemoScreenOptions& given) {
  DemoScreenOptions options = given;
  options.columns = std::max(kColumnsMin, given.columns);
  options.rows = std::max(kRowsMin, given.rows);
  const Painter paint(options.colours);
  const bool is_tall = options.rows >= kTallRows;
  std::vector<std::string> lines = {title_line(view, options), status_line(view)};
  if (is_tall) lines.emplace_back();
  lines.push_back(paint(Paint::kBold, plan_summary(view)));
  add(lines, pipeline_lines(view, options));
  if (is_tall) lines.emplace_back();
  add(lines, timeline_lines(view, options));
  if (is_tall) lines.emplace_back();
  add(lines, loss_lines(view, options, is_tall ? 5 : 2));
  if (is_tall) lines.emplace_back();
  // Events get what is left, and three lines at least.
  constexpr int kEventsMin = 3;
  lines.resize(std::min(lines.size(), static_cast<size_t>(options.rows - kEventsMin)));
  const auto room = static_cast<size_t>(options.rows) - lines.size();
  const size_t shown = std::min(room, view.events.size());
  for (size_t i = view.events.size() - shown; i < view.events.size(); ++i) {
    lines.push_back(event_line(view.events[i], options));
  }
  for (std::string& line : lines) {
    line = clip(line, options.columns);
    line.erase(line.find_last_not_of(' ') + 1);
  }
  return lines;
}

}  // namespace skein::cli
