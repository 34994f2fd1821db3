// Prints schedules of all kinds: a line "# kind ranks stages_per_rank microbatches", then the CSV.

#include <cstdio>

#include "plans/schedule/schedule.hpp"
#include "plans/schedule/schedule_csv.hpp"

namespace {

using namespace skein::plans;

void print(ScheduleKind kind, int32_t ranks, int32_t per_rank, int32_t microbatches) {
  const auto schedule = make_schedule(kind, looped_shape(ranks, per_rank, microbatches));
  if (!schedule.ok()) return;  // Not made for several stages per rank, or Custom.
  std::printf("# %s %d %d %d\n%s", std::string(to_text(kind)).c_str(), ranks, per_rank,
              microbatches, to_csv(*schedule).c_str());
}

}  // namespace

int main() {
  for (ScheduleKind kind : schedule_kinds()) {
    for (int32_t ranks : {1, 2, 3, 4, 7}) {
      for (int32_t per_rank : {1, 2, 3}) {
        for (int32_t microbatches = 1; microbatches <= 3 * ranks + 1; ++microbatches) {
          print(kind, ranks, per_rank, microbatches);
        }
      }
    }
  }
  return 0;
}
