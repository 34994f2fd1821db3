#include "gpu/text/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

unsigned char byte_at(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<Added> all) : all_(std::move(all)) {
  std::stable_sort(all_.begin(), all_.end(),
                   [](const Added& a, const Added& b) { return a.content < b.content; });
  const auto end = std::unique(all_.begin(), all_.end(), [](const Added& a, const Added& b) {
    return a.content == b.content;
  });
  all_.erase(end, all_.end());
  for (const Added& each : all_) firsts_.set(byte_at(each.content, 0));
}

const AddedTokens::Added* AddedTokens::longest_at(std::string_view text) const {
  if (!firsts_.test(byte_at(text, 0))) return nullptr;
  const Added* longest = nullptr;
  auto begin = all_.begin(), end = all_.end();
  // All in [begin, end) are longer than `depth`, or as long, and begin as the text does.
  for (size_t depth = 0; begin != end; ++depth) {
    if (begin->content.size() == depth) longest = &*begin++;
    if (depth == text.size()) break;
    const unsigned char here = byte_at(text, depth);
    begin = std::partition_point(begin, end, [depth, here](const Added& each) {
      return byte_at(each.content, depth) < here;
    });
    end = std::partition_point(begin, end, [depth, here](const Added& each) {
      return byte_at(each.content, depth) == here;
    });
  }
  return longest;
}

absl::Status AddedTokens::find(std::string_view text, std::vector<int32_t>& tokens,
                               const std::function<absl::Status(std::string_view)>& rest) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !all_.empty();) {
    const Added* found = longest_at(text.substr(at));
    if (found == nullptr) {
      ++at;
      continue;
    }
    if (at > done) SKEIN_RETURN_IF_ERROR(rest(text.substr(done, at - done)));
    tokens.push_back(found->token);
    done = at = at + found->content.size();
  }
  return done < text.size() ? rest(text.substr(done)) : absl::OkStatus();
}

}  // namespace skein::gpu
