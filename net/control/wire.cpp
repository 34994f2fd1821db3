#include "net/control/wire.hpp"

#include <cstring>

#include <capnp/dynamic.h>
#include <kj/exception.h>

#include "absl/strings/str_cat.h"
#include "net/schema/control.capnp.h"
#include "net/schema/tensor.capnp.h"

namespace skein::net {
namespace {

/// Structs within structs and lists: the schema needs four.
constexpr int kNestingMax = 16;

capnp::ReaderOptions reader_options() {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = kTraversalWordsMax;
  options.nestingLimit = kNestingMax;
  return options;
}

/// Reads every field once, so that a pointer out of bounds or a text without its end is found here
/// and not in an actor that reads it later.
void walk(const capnp::DynamicValue::Reader& value) {
  if (value.getType() == capnp::DynamicValue::LIST) {
    for (auto element : value.as<capnp::DynamicList>()) walk(element);
  } else if (value.getType() == capnp::DynamicValue::STRUCT) {
    auto group = value.as<capnp::DynamicStruct>();
    for (auto field : group.getSchema().getNonUnionFields()) walk(group.get(field));
    KJ_IF_MAYBE (member, group.which()) {
      walk(group.get(*member));
    }
  }
}

}  // namespace

template <class T>
Wire<T>::Message::Message(kj::Array<capnp::word> encoded)
    : words(kj::mv(encoded)), reader(words, reader_options()), root(reader.template getRoot<T>()) {}

template <class T>
absl::StatusOr<Wire<T>> Wire<T>::parse(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0 || bytes.size() > kControlBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", bytes.size(),
                                                   " bytes; expected whole words, at most ",
                                                   kControlBytesMax, " bytes"));
  }
  std::shared_ptr<const Message> message;
  auto failure = kj::runCatchingExceptions([&] {
    auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
    std::memcpy(words.begin(), bytes.data(), bytes.size());
    message = std::make_shared<const Message>(kj::mv(words));
    walk(capnp::DynamicStruct::Reader(message->root));
  });
  KJ_IF_MAYBE (exception, failure) {
    return absl::InvalidArgumentError(
        absl::StrCat("a malformed message: ", exception->getDescription().cStr()));
  }
  return Wire(std::move(message));
}

template <class T>
std::span<const std::byte> Wire<T>::bytes() const {
  const auto raw = message_->words.asBytes();
  return {reinterpret_cast<const std::byte*>(raw.begin()), raw.size()};
}

template class Wire<schema::Envelope>;
template class Wire<schema::Hello>;
template class Wire<schema::TensorHeader>;

}  // namespace skein::net
