// Groups of GPUs that form, split, shrink, lose a member and form again, on one GPU: every rank is
// a process that NCCL takes for a host of its own.
//   nccl_groups [--ranks-max N] [--floats N] [--rounds N] [--changes N] [--patience-ms N]
// Prints how long each change takes for 3 to N ranks (8), checks that the weights after a loss are
// those of an undisturbed run, makes groups as `plans::choose_formations` says for N changes (30),
// and forms a group N times (200), counting memory, threads and descriptors before and after. After
// a loss the library has so many milliseconds (0) to notice it before the survivors are told. Exit
// code 77 without a GPU or NCCL.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/gpu/nccl_groups/phases.hpp"
#include "bench/gpu/nccl_groups/rank_program.hpp"
#include "bench/gpu/nccl_groups/team.hpp"

namespace skein::bench {
namespace {

struct Options {
  int ranks_max = 8;
  int64_t floats = 1 << 20;
  int rounds = 200;
  int changes = 30;
  std::chrono::milliseconds patience{0};
};

/// False if it is not one of the program's.
bool parse(const char* name, const char* value, Options& options) {
  const auto number = std::atoll(value);
  if (std::strcmp(name, "--ranks-max") == 0)
    options.ranks_max = static_cast<int>(number);
  else if (std::strcmp(name, "--floats") == 0)
    options.floats = number;
  else if (std::strcmp(name, "--rounds") == 0)
    options.rounds = static_cast<int>(number);
  else if (std::strcmp(name, "--changes") == 0)
    options.changes = static_cast<int>(number);
  else if (std::strcmp(name, "--patience-ms") == 0)
    options.patience = std::chrono::milliseconds(number);
  else
    return false;
  return number > 0;
}

std::string cell(const absl::StatusOr<double>& milliseconds, bool is_as_asked) {
  char text[32] = "      failed";
  if (milliseconds.ok()) {
    std::snprintf(text, sizeof text, "%11.1f%c", *milliseconds, is_as_asked ? ' ' : '*');
  }
  return text;
}

/// The number of cells that failed.
int print_times(const Options& options) {
  std::printf("%5s%12s%12s%12s%12s%12s%12s   ms\n", "ranks", "form", "split", "shrink", "revoke+",
              "shrink with", "abort and");
  std::printf("%5s%12s%12s%12s%12s%12s%12s\n", "", "", "", "", "shrink", "abort", "new id");
  std::string errors;
  int failed = 0;
  for (int ranks = 3; ranks <= options.ranks_max; ++ranks) {
    const Times times = time_changes(options.floats, ranks, options.patience);
    std::printf("%5d", ranks);
    for (const auto* each : {&times.form, &times.split, &times.shrink, &times.revoke_and_shrink,
                             &times.shrink_with_abort, &times.abort_and_form}) {
      const bool is_anew = (each == &times.revoke_and_shrink && !times.has_revoked) ||
                           (each == &times.shrink_with_abort && !times.has_shrunk);
      std::printf("%s", cell(*each, !is_anew).c_str());
      if (each->ok()) continue;
      ++failed;
      absl::StrAppend(&errors, ranks, " ranks: ", std::string(each->status().message()), "\n");
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("* the library had noticed the loss: from a new id instead\n%s", errors.c_str());
  return failed;
}

int report(const char* what, const absl::StatusOr<std::string>& result) {
  std::printf("%s: %s\n", what,
              result.ok() ? result->c_str() : std::string(result.status().message()).c_str());
  std::fflush(stdout);
  return result.ok() ? 0 : 1;
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 < argc && parse(argv[i], argv[i + 1], options)) continue;
    std::fprintf(stderr, "nccl_groups: what is %s?\n", argv[i]);
    return 2;
  }
  Team first(options.floats, 1);
  std::printf("%s\n", first.greeting().c_str());
  if (!first.greeting().starts_with("ready ")) return 77;
  int failed = print_times(options);
  failed += report("changes", change_groups(options.floats, options.ranks_max, options.changes));
  failed += report("formed again", form_again(options.floats, 3, options.rounds));
  std::printf("%s\n", failed == 0 ? "all worked" : "FAILED");
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--rank") == 0) {
    return skein::bench::run_rank(std::atoll(argv[2]));
  }
  return skein::bench::run(argc, argv);
}
