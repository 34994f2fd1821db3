#include "cli/demo/demo_front.hpp"

#include <unistd.h>

#include "absl/strings/str_format.h"
#include "actors/printing/line_printer.hpp"
#include "cli/report/live_terminal.hpp"
#include "cli/report/number_text.hpp"

namespace skein::cli {
namespace {

/// Between two frames; the terminal of a slow connection can follow.
constexpr double kFrameSeconds = 0.15;
/// Between two progress lines.
constexpr double kLineSeconds = 2;

class LiveFront final : public DemoFront {
 public:
  void show(const DemoView& view) override {
    if (view.seconds < next_s_) return;
    next_s_ = view.seconds + kFrameSeconds;
    DemoScreenOptions options;
    options.columns = terminal_.columns();
    options.rows = terminal_.rows();
    options.colours = grid_options_of(STDOUT_FILENO).colours;
    options.hint = "k kills a worker, Ctrl-C ends";
    terminal_.draw(demo_screen(view, options));
  }
  char key() override { return terminal_.key(); }

 private:
  LiveTerminal terminal_;
  double next_s_ = 0;
};

class PlainFront final : public DemoFront {
 public:
  ~PlainFront() override {
    show_events();
    printer_.finish(actors::LinePrinter::kAtEnd).IgnoreError();
  }

  void show(const DemoView& view) override {
    view_ = view;
    show_events();
    if (view.generation != generation_) {
      generation_ = view.generation;
      for (const std::string& text : pipeline_lines(view, {})) line("      " + text);
      plan_seconds_ = view.seconds;
      shown_timeline_ = false;
    }
    // One that was recorded under this plan, and not while it was being put in force.
    const bool is_new = view.timeline_step > timeline_step_ && view.seconds > plan_seconds_ + 1;
    if (!shown_timeline_ && is_new) {
      shown_timeline_ = true;
      for (const std::string& text : timeline_lines(view, {})) line("      " + text);
    }
    timeline_step_ = view.timeline_step;
    if (view.seconds < next_s_ || view.losses.empty()) return;
    next_s_ = view.seconds + kLineSeconds;
    line(absl::StrFormat("%s  %s", clock_text(view.seconds), status_line(view)));
  }
  char key() override { return 0; }

 private:
  void show_events() {
    for (; events_shown_ < view_.events.size(); ++events_shown_) {
      const DemoEvent& event = view_.events[events_shown_];
      line(absl::StrFormat("%s  %s", clock_text(event.seconds), event.text));
    }
  }
  void line(const std::string& text) { printer_.print(text); }

  actors::LinePrinter printer_{STDOUT_FILENO, "standard output"};
  DemoView view_;
  size_t events_shown_ = 0;
  uint64_t generation_ = 0;
  uint64_t timeline_step_ = 0;
  bool shown_timeline_ = true;
  double plan_seconds_ = 0;
  double next_s_ = 0;
};

}  // namespace

std::unique_ptr<DemoFront> make_demo_front() {
  if (LiveTerminal::is_possible()) return std::make_unique<LiveFront>();
  return std::make_unique<PlainFront>();
}

}  // namespace skein::cli
