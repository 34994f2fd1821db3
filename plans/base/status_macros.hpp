#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// Returns from the enclosing function when `expression`, an `absl::Status`, is an error.
#define SKEIN_RETURN_IF_ERROR(expression)          \
  do {                                             \
    absl::Status skein_status_ = (expression);     \
    if (!skein_status_.ok()) return skein_status_; \
  } while (false)

#define SKEIN_MACRO_JOIN_INNER(a, b) a##b
#define SKEIN_MACRO_JOIN(a, b) SKEIN_MACRO_JOIN_INNER(a, b)

/// Assigns the value of `expression`, an `absl::StatusOr`, to `declaration`, or returns its error.
#define SKEIN_ASSIGN_OR_RETURN(declaration, expression) \
  SKEIN_ASSIGN_OR_RETURN_INNER(SKEIN_MACRO_JOIN(skein_or_, __LINE__), declaration, expression)

#define SKEIN_ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                         \
  if (!temporary.ok()) return temporary.status();                        \
  declaration = std::move(temporary).value()
