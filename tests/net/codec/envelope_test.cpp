#include "net/codec/envelope.hpp"

#include <capnp/dynamic.h>
#include <capnp/message.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/net/codec/random_messages.hpp"

namespace skein::net {
namespace {

constexpr size_t kKinds = std::variant_size_v<ControlBody>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool same_bytes(const ControlMessage& a, const ControlMessage& b) {
  return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

TEST(Codec, EveryMessageOfTheSchemaHasAStruct) {
  const auto body = capnp::Schema::from<schema::Envelope>().getFieldByName("body");
  size_t messages = 0;
  for (auto field : body.getType().asStruct().getUnionFields()) {
    messages += absl::StartsWith(field.getProto().getName().cStr(), "obsolete") ? 0 : 1;
  }
  EXPECT_EQ(messages, kKinds);
}

TEST(Codec, WhatIsWithinTheBoundsSurvives) {
  RandomMessages random(1);
  for (size_t kind = 0; kind < kKinds; ++kind) {
    for (int trial = 0; trial < 300; ++trial) {
      const Envelope sent{random.head(), random.body(kind)};
      const ControlMessage encoded = encode(sent.head, sent.body);
      const auto received = decode(encoded);
      ASSERT_TRUE(received.ok()) << "kind " << kind << ": " << received.status();
      ASSERT_EQ(received->body.index(), kind);
      ASSERT_TRUE(*received == sent) << "kind " << kind << ", trial " << trial;
      ASSERT_TRUE(same_bytes(encode(received->head, received->body), encoded)) << "kind " << kind;
    }
  }
}

TEST(Codec, StructsMayBeSentAsTheyAreMade) {
  // Not so where a worker must be named, or a plan or a profile must be there.
  const std::vector<ControlBody> plain = {Refused(),
                                          Prepared(),
                                          Start(),

                                          Reduced(),
                                          EarlySignal(),
                                          plans::CommitOrder(),
                                          Validated(),
                                          ShardSaved(),
                                          ShardSent(),
                                          LayersWanted(),
                                          Heartbeat(),
                                          HeartbeatAck(),
                                          Timings(),
                                          Failed(),
                                          Stop(),
                                          StatusRequest(),
                                          Status(),
                                          Quiesce(),
                                          Quiesced(),
                                          PeerFailure(),
                                          CheckpointUnreadable(),
                                          Leave(),
                                          SnapshotKept(),
                                          Emulate(),
                                          Claim(),
                                          plans::UpdateOrder(),
                                          Average(),
                                          Averaged(),
                                          AbortGroup(),
                                          plans::JoinRequest(),
                                          plans::ReadyReport(),
                                          ProfileRequest(),
                                          plans::TextRequest(),
                                          plans::TextRoom(),
                                          plans::TextReady(),
                                          plans::TextStep()};
  for (const ControlBody& body : plain) {
    const auto received = decode(encode({}, body));
    ASSERT_TRUE(received.ok()) << received.status();
    EXPECT_TRUE(received->body == body) << body.index();
  }
}

// Every field of the schema is set to what cannot be, one at a time: a field that is new and has no
// bound fails here.

/// A field of a message: names, and -1 or the element of a list.
using Path = std::vector<std::pair<std::string, int>>;

void find_leaves(capnp::DynamicStruct::Reader from, const Path& path, std::vector<Path>& leaves) {
  auto visit = [&](capnp::StructSchema::Field field) {
    Path own = path;
    own.emplace_back(field.getProto().getName().cStr(), -1);
    const auto value = from.get(field);
    if (value.getType() == capnp::DynamicValue::VOID) return;
    if (value.getType() == capnp::DynamicValue::STRUCT) {
      return find_leaves(value.as<capnp::DynamicStruct>(), own, leaves);
    }
    if (value.getType() == capnp::DynamicValue::LIST) {
      const auto list = value.as<capnp::DynamicList>();
      ASSERT_GT(list.size(), 0u) << "a list to look into";
      own.back().second = 0;
      if (list[0].getType() == capnp::DynamicValue::STRUCT) {
        find_leaves(list[0].as<capnp::DynamicStruct>(), own, leaves);
      } else {
        leaves.push_back(own);
      }
      own.back().second = -1;
    }
    leaves.push_back(own);
  };
  for (auto field : from.getSchema().getNonUnionFields()) visit(field);
  KJ_IF_MAYBE (member, from.which()) {
    visit(*member);
  }
}

/// The struct that has the last field of the path.
capnp::DynamicStruct::Builder holder_of(capnp::MessageBuilder& message, const Path& path) {
  capnp::DynamicStruct::Builder holder(message.getRoot<schema::Envelope>());
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    auto next = holder.get(path[i].first);
    const unsigned element = static_cast<unsigned>(std::max(path[i].second, 0));
    holder = path[i].second < 0 ? next.as<capnp::DynamicStruct>()
                                : next.as<capnp::DynamicList>()[element].as<capnp::DynamicStruct>();
  }
  return holder;
}

/// "Timings.slices[0].track": the message's name is that of its type.
std::string to_text(capnp::DynamicStruct::Reader envelope, const Path& path) {
  std::string text = "Envelope";
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i].first == "body" && path.size() > i + 1) {
      const auto body = envelope.get("body").as<capnp::DynamicStruct>();
      const auto message = body.get(path[++i].first).as<capnp::DynamicStruct>();
      text = message.getSchema().getShortDisplayName().cStr();
      continue;
    }
    absl::StrAppend(&text, ".", path[i].first);
    if (path[i].second >= 0) absl::StrAppend(&text, "[", path[i].second, "]");
  }
  return text;
}

/// What no field may be. `set` puts it where the path leads.
struct Breach {
  std::string what;
  std::function<void(capnp::DynamicStruct::Builder, const std::string& field, int element)> set;
};

void set_leaf(capnp::DynamicStruct::Builder to, const std::string& field, int element,
              const capnp::DynamicValue::Reader& value) {
  if (element < 0) {
    to.set(field, value);
  } else {
    to.get(field).as<capnp::DynamicList>().set(static_cast<unsigned>(element), value);
  }
}

template <class Value>
Breach breach(const std::string& what, Value value) {
  return {what, [value](auto to, const std::string& field, int element) {
            set_leaf(to, field, element, capnp::DynamicValue::Reader(value));
          }};
}

Breach text_breach(const std::string& what, const std::string& value) {
  return {what, [value](auto to, const std::string& field, int element) {
            set_leaf(to, field, element, capnp::Text::Reader(value.c_str(), value.size()));
          }};
}

uint64_t largest(capnp::Type type) {
  if (type.isUInt8()) return std::numeric_limits<uint8_t>::max();
  if (type.isInt32()) return std::numeric_limits<int32_t>::max();
  if (type.isUInt32()) return std::numeric_limits<uint32_t>::max();
  return std::numeric_limits<uint64_t>::max();
}

/// More than any list may have; moves are many.
unsigned too_many(const std::string& field) {
  return static_cast<unsigned>(field == "moves" ? kMovesMax : kLayersMax) + 1;
}

std::vector<Breach> breaches_of(capnp::Type type, bool is_list) {
  if (is_list) {
    return {{"too long",
             [](auto to, const std::string& field, int) { to.init(field, too_many(field)); }}};
  }
  if (type.isText()) {
    return {text_breach("too long", std::string(kActionsBytesMax + 1, 'x')),
            text_breach("a control character", "a\x1b[2Jb"),
            text_breach("an upper control character",
                        "a\xc2\x9b"
                        "2Jb"),
            text_breach("a turn of direction",
                        "a\xe2\x80\xae"
                        "b"),
            text_breach("half of a character", "\xc3"),
            text_breach("half of a pair", "\xed\xa0\x80"),
            text_breach("a long zero", "\xc0\x80")};
  }
  if (type.isData()) {
    return {{"too long", [](auto to, const std::string& field, int) {
               to.init(field, static_cast<unsigned>(kRendezvousBytesMax) + 1);
             }}};
  }
  if (type.isFloat64()) {
    return {breach("no number", kNan), breach("infinite", kInfinity), breach("below", -kInfinity),
            breach("negative", -1e300)};
  }
  if (type.isBool() || type.isVoid()) return {};
  std::vector<Breach> breaches = {breach("too large", largest(type))};
  if (type.isInt32()) breaches.push_back(breach("too small", int64_t{-2}));
  return breaches;
}

/// Fields that may be anything that their type can say, with the reason.
const std::set<std::string>& free_fields() {
  static const std::set<std::string> kFree = {
      "Envelope.traceHigh",    "Envelope.traceLow",            // Bits that are compared and shown.
      "Join.processId",        "Status.workers[0].processId",  // Read by people.
      "Assign.dataDigest",     "ShardSaved.files[0].crc32c",
      "Join.configDigest",     "Joined.configDigest",
      "Assign.configDigest",   "Assign.secret",
      "TextRequest.digest",    "TextLayers.secret",
      "Ready.obsoleteSamples", "Assign.plan.obsoleteWhole",  // Nobody reads them.
      "Ready.lossSum",         "Validated.lossSum",
      "Status.loss",  // Tell that the training diverged.
  };
  return kFree;
}

/// Finite or not, but never below 0.
bool may_diverge(const std::string& field) {
  return field == "Ready.normSquared" || field == "Reduced.normSquared";
}

TEST(Codec, EveryFieldHasABound) {
  RandomMessages random(2);
  std::set<std::string> seen;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const ControlMessage valid = encode(random.head(), random.body(kind));
    std::vector<Path> leaves;
    find_leaves(capnp::DynamicStruct::Reader(*valid), {}, leaves);
    for (const Path& path : leaves) {
      const std::string name = to_text(capnp::DynamicStruct::Reader(*valid), path);
      seen.insert(name);
      if (free_fields().contains(name)) continue;
      const auto& [field, element] = path.back();
      capnp::MallocMessageBuilder whole;
      whole.setRoot(*valid);
      capnp::Type type = holder_of(whole, path).getSchema().getFieldByName(field).getType();
      const bool is_list = type.isList() && element < 0;
      if (type.isList()) type = type.asList().getElementType();
      for (const Breach& each : breaches_of(type, is_list)) {
        if (may_diverge(name) && each.what != "negative") continue;
        capnp::MallocMessageBuilder broken;
        broken.setRoot(*valid);
        each.set(holder_of(broken, path), field, element);
        const auto received = decode(ControlMessage::encode(broken));
        ASSERT_FALSE(received.ok()) << name << " " << each.what << " was accepted";
        EXPECT_EQ(received.status().code(), absl::StatusCode::kInvalidArgument);
        // A range is told of by where it begins.
        const std::string where = absl::StrReplaceAll(name, {{"layerEnd", "layerBegin"}});
        EXPECT_TRUE(absl::StartsWith(received.status().message(), where + " "))
            << name << " " << each.what << ": " << received.status();
      }
    }
  }
  for (const std::string& name : free_fields()) EXPECT_TRUE(seen.contains(name)) << name;
  EXPECT_GT(seen.size(), 150u);
}

// Bounds that lie inside of what a type can say.

absl::Status status_of(const ControlBody& body, const EnvelopeHead& head = {}) {
  return decode(encode(head, body)).status();
}
std::string reason_of(const ControlBody& body) { return std::string(status_of(body).message()); }

TEST(Codec, ANumberOneBeyondItsBoundIsRefusedWithWhatIsAllowed) {
  EXPECT_EQ(reason_of(Claim{kStepsMax + 1, {}, false}),
            absl::StrCat("Claim.step is ", kStepsMax + 1, ", at most ", kStepsMax));
  EXPECT_EQ(reason_of(Reduced{{kReplicasMax}, 0, 0}),
            "Reduced.replica is 100000, less than 100000");
  Timings timings;
  timings.slices = {Slice(), Slice()};
  timings.slices[1].track = kTracks;
  EXPECT_EQ(reason_of(timings), "Timings.slices[1].track is 6, less than 6");
  timings.slices[1].track = 0;
  timings.slices[1].microbatch = -2;
  EXPECT_EQ(reason_of(timings),
            "Timings.slices[1].microbatch is -2, -1 for none or less than 1048576");
}

TEST(Codec, WorkerZeroIsNobody) {
  EXPECT_EQ(reason_of(DrainRequest{}), "DrainRequest.worker is 0, which is no worker");
  EXPECT_EQ(reason_of(Joined{}), "Joined.worker is 0, which is no worker");
  EXPECT_FALSE(status_of(ProfileRequest{{}, {{{0}, "a:1"}}}).ok());
}

TEST(Codec, ATextHasPositions) {
  EXPECT_EQ(reason_of(plans::TextRequest{"a", 0, 0, 1}), "TextRequest.positions is 0, at least 1");
  EXPECT_EQ(reason_of(plans::TextRequest{"a", 0, 1, 0}), "TextRequest.added is 0, at least 1");
  EXPECT_EQ(reason_of(plans::TextStep{1, 0, 0, {}}), "TextStep.count is 0, at least 1");
}

TEST(Codec, TheHeadIsBoundedToo) {
  EXPECT_EQ(status_of(Start(), {.generation = kGenerationsMax + 1}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status_of(Start(), {.term = kTermsMax + 1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status_of(Start(), {.sender = plans::kWorkerIdMax + 1}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Codec, ASpeedOfZeroOrBelowIsNone) {
  plans::JoinRequest join;
  for (double speed : {0.0, -1.0, kNan, kInfinity}) {
    join.speed = speed;
    EXPECT_FALSE(status_of(join).ok()) << speed;
  }
  for (double speed : {-0.5, 1.5, kNan})
    EXPECT_FALSE(status_of(Emulate{speed, {}, 0}).ok()) << speed;
  for (double seconds : {-1.0, kNan, kInfinity}) {
    EXPECT_FALSE(status_of(Emulate{0, {2}, seconds}).ok()) << seconds;
  }
}

TEST(Codec, DivergenceCanBeTold) {
  for (double value : {kNan, kInfinity}) {
    plans::ReadyReport ready;
    ready.loss_sum = value;
    ready.norm_squared = value;
    EXPECT_TRUE(status_of(ready).ok());
    EXPECT_TRUE(status_of(Reduced{{0}, 0, value}).ok());
    EXPECT_TRUE(status_of(Validated{{0}, 0, value, 1}).ok());
    // Whoever commits has looked at it.
    EXPECT_FALSE(status_of(plans::UpdateOrder{0, value, {}, false}).ok());
  }
}

TEST(Codec, ListsHaveNamedMaxima) {
  Average average;
  average.members.resize(kMembersMax);
  EXPECT_TRUE(status_of(average).ok());
  average.members.resize(kMembersMax + 1);
  EXPECT_EQ(reason_of(average), "Average.members has 4097 elements, at most 4096");
  ShardSaved saved;
  saved.files.resize(kFilesPerShardMax, {"model", 0, 0, {}});
  EXPECT_TRUE(status_of(saved).ok());
  saved.files.resize(kFilesPerShardMax + 1, {"model", 0, 0, {}});
  EXPECT_EQ(reason_of(saved), "ShardSaved.files has 65 elements, at most 64");
  RendezvousEntry entry{"key", std::vector<char>(kRendezvousBytesMax + 1)};
  EXPECT_EQ(reason_of(entry), "Rendezvous.value has 1048577 bytes, at most 1048576");
}

TEST(Codec, AFileStaysInItsFolder) {
  for (const char* name : {"../model", "/etc/passwd", "a/../../b", "", ".", "a//b", "a/"}) {
    ShardSaved saved;
    saved.files = {{name, 0, 0, {}}};
    EXPECT_FALSE(status_of(saved).ok()) << name;
  }
}

TEST(Codec, InventoryCoverALayerAtLeast) {
  Quiesced quiesced;
  quiesced.state_inventory = {{1, {0, 1}, 1}, {1, {3, 3}, 1}};
  EXPECT_EQ(reason_of(quiesced),
            "Quiesced.inventory[1].layerBegin is 3..3, which is no range of at most 100000 layers");
}

TEST(Codec, ActionsThatDoNotParseAreNoList) {
  RandomMessages random(3);
  const ControlBody valid = random.body(ControlBody(Assign()).index());
  capnp::MallocMessageBuilder message;
  message.setRoot(*encode({}, valid));
  message.getRoot<schema::Envelope>().getBody().getAssign().getPlan().setActions("0F0,x");
  EXPECT_EQ(decode(ControlMessage::encode(message)).status().message(),
            "Assign.plan.actions are no list of actions");
}

TEST(Codec, AProfileFitsTogether) {
  RandomMessages random(4);
  auto measured =
      std::get<plans::MeasuredWorker>(random.body(ControlBody(plans::MeasuredWorker()).index()));
  measured.profile.rows = {1, 4};
  for (plans::LayerProfile& layer : measured.profile.layers) layer.at.resize(2);
  ASSERT_TRUE(status_of(measured).ok()) << status_of(measured);
  measured.profile.rows = {4, 1};
  EXPECT_TRUE(absl::StartsWith(reason_of(measured), "Profiled.profile does not fit together: "))
      << reason_of(measured);
  measured.profile.rows = {1, 4, 8};
  EXPECT_EQ(reason_of(measured), "Profiled.profile.layers[0].times has 2 elements, but rows has 3");
}

TEST(Codec, ReasonsAreCutToWhatAPeerAccepts) {
  std::string reason = "disk full:\n\x1b[1m\xff ";
  while (reason.size() < 2 * kReasonBytesMax) reason += "\u540d";
  const auto received = decode(encode({}, Failed{reason, true}));
  ASSERT_TRUE(received.ok()) << received.status();
  const std::string& told = std::get<Failed>(received->body).reason;
  EXPECT_TRUE(absl::StartsWith(told, "disk full:  [1m? \u540d"));
  EXPECT_LE(told.size(), kReasonBytesMax);
  EXPECT_GT(told.size(), kReasonBytesMax - 4);
}

TEST(Codec, MoreSlicesThanAPeerAcceptsAreLeftOut) {
  Timings timings;
  timings.slices.resize(kSlicesMax + 7);
  const auto received = decode(encode({}, timings));
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(std::get<Timings>(received->body).slices.size(), kSlicesMax);
}

}  // namespace
}  // namespace skein::net
