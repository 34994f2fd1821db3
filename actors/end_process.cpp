#include "actors/end_process.hpp"

#include <cstdlib>
#include <exception>

#include <caf/error.hpp>
#include <caf/sec.hpp>

#include "absl/strings/str_cat.h"
#include "actors/printing/stderr_lines.hpp"

namespace skein::actors {
namespace {

/// For whoever reads standard error; the process has to end.
constexpr double kPatienceSeconds = 1;

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

void end_process(const std::string& actor, const std::string& what) {
  print_error_line(absl::StrCat("event=actor.failed actor=", actor, " reason=\"", what, "\""));
  finish_error_lines(kPatienceSeconds);
  std::_Exit(kExitActorFailed);
}

void end_process_on_failure(caf::scheduled_actor& self) {
  self.set_exception_handler(
      [](caf::scheduled_actor* actor, std::exception_ptr& error) -> caf::error {
        end_process(actor->name(), text_of(error));
      });
  self.set_error_handler([](caf::scheduled_actor* actor, caf::error& error) {
    end_process(actor->name(), caf::to_string(error));
  });
}

}  // namespace skein::actors
