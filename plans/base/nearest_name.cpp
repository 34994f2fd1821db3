#include "plans/base/nearest_name.hpp"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::plans {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names) {
  std::string nearest;
  size_t best = std::max<size_t>(2, wrong.size() / 3) + 1;
  for (const std::string& name : names) {
    // A right last part in a wrong section counts as near.
    const bool same_tail =
        !wrong.empty() && name.ends_with("." + wrong.substr(wrong.rfind('.') + 1));
    const size_t distance = same_tail ? 1 : edit_distance(wrong, name);
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string suggestion(const std::string& wrong, const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(wrong, names);
  return nearest.empty() ? "" : absl::StrCat(" (did you mean ", nearest, "?)");
}

absl::StatusOr<size_t> find_name(const std::string& name, const std::vector<std::string>& names,
                                 const std::string& key) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  return absl::InvalidArgumentError(absl::StrCat(key, " = \"", name, "\"", suggestion(name, names),
                                                 ": must be one of ", absl::StrJoin(names, ", ")));
}

}  // namespace skein::plans
