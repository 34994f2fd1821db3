#include "net/data/data_plane.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/control/frame.hpp"
#include "net/control/hello.hpp"
#include "net/data/tensor_header.hpp"

namespace skein::net {
namespace {

using testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(20);
constexpr uint32_t kRowFloats = 33;

/// A plain socket to "127.0.0.1:port".
int connect_to(const std::string& address) {
  const int socket_number = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket_number, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return socket_number;
}

struct DataPlaneTest : testing::Test {
  DataPlaneTest() : loop(EventLoop::start().value()) {
    sender = DataPlane::start(*loop, {}).value();
    receiver = DataPlane::start(*loop, {}).value();
  }
  ~DataPlaneTest() override {
    arrived.clear();
    sender.reset();
    receiver.reset();
    loop.reset();
  }

  TensorInbox::StreamSpec stream(uint32_t begin, uint32_t count, uint32_t tensors_max = 100,
                                 uint64_t generation = 1) {
    TensorInbox::StreamSpec spec;
    spec.generation = generation;
    spec.receiver = 5;
    spec.row_begin = begin;
    spec.row_count = count;
    spec.row_floats = kRowFloats;
    spec.tensors_max = tensors_max;
    spec.on_tensor = [this](const TensorKey& key, TensorHandle handle) {
      std::lock_guard lock(mutex);
      arrived[key.microbatch] = std::move(handle);
      ++count_arrived;
      changed.notify_all();
    };
    return spec;
  }

  /// Rows whose values are their row number and micro-batch.
  DataPlane::Rows rows(uint32_t microbatch, uint32_t begin, uint32_t count,
                       uint64_t generation = 1) {
    auto values = std::make_shared<std::vector<float>>(size_t{count} * kRowFloats);
    for (uint32_t r = 0; r < count; ++r) {
      std::fill_n(values->begin() + r * kRowFloats, kRowFloats,
                  static_cast<float>(100 * microbatch + begin + r));
    }
    DataPlane::Rows part;
    part.key = {generation, 5, schema::TensorKind::ACTIVATION, 0, microbatch};
    part.row_begin = begin;
    part.row_count = count;
    part.payload = *values;
    part.owner = values;
    return part;
  }

  bool wait_for(size_t tensors) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] { return count_arrived >= tensors; });
  }

  /// Asks again and again, for what no condition variable tells.
  template <class Predicate>
  bool eventually(Predicate predicate) {
    std::unique_lock lock(mutex);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!predicate()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    return true;
  }

  /// A plane that counts in `losses` what it is told of lost peers.
  std::unique_ptr<DataPlane> plane_that_counts(std::atomic<int>& losses,
                                               double connect_timeout_seconds = 10) {
    DataPlane::Options options;
    options.connect_timeout_seconds = connect_timeout_seconds;
    options.on_peer_lost = [&losses](const std::string&, absl::Status) { ++losses; };
    return DataPlane::start(*loop, options).value();
  }

  /// A plane whose reasons to refuse connections are collected, under `mutex`.
  std::unique_ptr<DataPlane> plane_that_refuses(std::vector<std::string>& refusals) {
    DataPlane::Options options;
    options.on_refused = [this, &refusals](const std::string&, const std::string& why) {
      std::lock_guard lock(mutex);
      refusals.push_back(why);
      changed.notify_all();
    };
    return DataPlane::start(*loop, options).value();
  }

  std::unique_ptr<EventLoop> loop;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint32_t, TensorHandle> arrived;
  size_t count_arrived = 0;
  std::unique_ptr<DataPlane> sender, receiver;
};

TEST_F(DataPlaneTest, ConcatenatesAnySplit) {
  const std::vector<std::vector<uint32_t>> splits = {{6}, {2, 4}, {1, 1, 4}, {3, 1, 1, 1}};
  for (uint32_t m = 0; m < splits.size(); ++m) {
    TensorInbox::StreamSpec spec = stream(2, 6, 100, /*generation=*/m + 1);
    uint32_t begin = 2;
    for (uint32_t count : splits[m]) {
      spec.parts.emplace_back(begin, count);
      sender->send(receiver->address(), rows(m, begin, count, m + 1));
      begin += count;
    }
    receiver->inbox().open(std::move(spec));
  }
  ASSERT_TRUE(wait_for(splits.size()));
  for (auto& [m, handle] : arrived) {
    ASSERT_EQ(handle->size(), 6u * kRowFloats);
    for (uint32_t i = 0; i < handle->size(); ++i) {
      ASSERT_EQ((*handle)[i], static_cast<float>(100 * m + 2 + i / kRowFloats));
    }
  }
}

TEST_F(DataPlaneTest, NumbersThatAreBfloat16TakeHalfTheBytes) {
  receiver->inbox().open(stream(0, 4));
  sender->send(receiver->address(), rows(0, 0, 4));
  ASSERT_TRUE(wait_for(1));
  const uint64_t half = sender->statistics().bytes_sent;
  EXPECT_EQ(half, 4 * kRowFloats * sizeof(uint16_t));
  EXPECT_EQ(receiver->statistics().bytes_received, half);
  DataPlane::Rows exact = rows(1, 0, 4);
  auto values = std::make_shared<std::vector<float>>(exact.payload.begin(), exact.payload.end());
  values->back() = 1 + 0x1p-20F;
  exact.payload = *values;
  exact.owner = values;
  sender->send(receiver->address(), exact);
  ASSERT_TRUE(wait_for(2));
  EXPECT_EQ(sender->statistics().bytes_sent, half + 4 * kRowFloats * sizeof(float));
  std::lock_guard lock(mutex);
  EXPECT_EQ(arrived[0]->back(), 3);
  EXPECT_EQ(arrived[1]->front(), 100);
  EXPECT_EQ(arrived[1]->back(), 1 + 0x1p-20F);
}

TEST_F(DataPlaneTest, ATensorWaitsForItsStreamToOpen) {
  sender->send(receiver->address(), rows(0, 0, 4));
  receiver->inbox().open(stream(0, 4));
  EXPECT_TRUE(wait_for(1));
}

TEST_F(DataPlaneTest, NoMoreTensorsArriveThanMayBeHeld) {
  receiver->inbox().open(stream(0, 4, 2));
  for (uint32_t m = 0; m < 10; ++m) sender->send(receiver->address(), rows(m, 0, 4));
  for (uint32_t m = 0; m < 10; ++m) {
    ASSERT_TRUE(wait_for(m + 1));
    std::lock_guard lock(mutex);
    EXPECT_LE(arrived.size(), 2u);
    arrived.erase(m);  // Makes room for the next one.
  }
}

TEST_F(DataPlaneTest, DropsRepeatsAndStaleGenerations) {
  receiver->inbox().close_before(2);
  TensorInbox::StreamSpec halves = stream(0, 4, 100, /*generation=*/2);
  halves.parts = {{0, 2}, {2, 2}};
  receiver->inbox().open(std::move(halves));
  sender->send(receiver->address(), rows(7, 0, 4, /*generation=*/1));
  sender->send(receiver->address(), rows(0, 0, 2, 2));
  sender->send(receiver->address(), rows(0, 0, 2, 2));
  sender->send(receiver->address(), rows(0, 2, 2, 2));
  sender->send(receiver->address(), rows(0, 0, 2, 2));
  sender->send(receiver->address(), rows(1, 0, 2, 2));
  sender->send(receiver->address(), rows(1, 2, 2, 2));
  ASSERT_TRUE(wait_for(2));
  EXPECT_TRUE(eventually([&] { return receiver->statistics().dropped_headers == 3; }));
  EXPECT_EQ(count_arrived, 2u);
  EXPECT_FALSE(arrived.contains(7));
}

/// Takes what a plane sends to it, up to the payload.
struct Recorder {
  Recorder() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(listen(fd, 1), 0);
    socklen_t length = sizeof(at);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length), 0);
    address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~Recorder() { close(fd); }
  std::string hello_and_header() const {
    const int from = accept(fd, nullptr, nullptr);
    std::string bytes;
    auto take = [&](size_t count) {
      std::string piece(count, '\0');
      EXPECT_EQ(recv(from, piece.data(), count, MSG_WAITALL), static_cast<ssize_t>(count));
      bytes += piece;
      return piece;
    };
    for (int frame = 0; frame < 2; ++frame) {
      FrameHead head;
      std::memcpy(&head, take(sizeof(head)).data(), sizeof(head));
      take(size_t{head.words} * 8);
    }
    close(from);
    return bytes;
  }

  int fd = -1;
  std::string address;
};

TEST_F(DataPlaneTest, AHeaderWithoutPayloadHoldsUpNobodyForLong) {
  const Recorder recorder;
  sender->send(recorder.address, rows(0, 0, 4));
  const std::string stalls = recorder.hello_and_header();
  DataPlane::Options impatient;
  impatient.payload_timeout_seconds = 0.1;
  receiver = DataPlane::start(*loop, impatient).value();
  receiver->inbox().open(stream(0, 4, /*tensors_max=*/1));
  std::vector<int> strangers;
  for (int i = 0; i < 4; ++i) {
    strangers.push_back(connect_to(receiver->address()));
    ASSERT_EQ(write(strangers.back(), stalls.data(), stalls.size()),
              static_cast<ssize_t>(stalls.size()));
  }
  ASSERT_TRUE(eventually([&] { return receiver->statistics().dropped_headers > 0; }));
  sender->send(receiver->address(), rows(0, 0, 4));
  EXPECT_TRUE(wait_for(1)) << "the same rows, by one who has them";
  for (int fd : strangers) close(fd);
}

TEST_F(DataPlaneTest, AReusedPortTakesNoTensorsOfAnotherRun) {
  std::vector<std::string> refusals;
  auto here = plane_that_refuses(refusals);
  here->identify({"small-1", {1}});
  here->inbox().open(stream(0, 4));
  std::atomic<int> losses = 0;
  auto other = plane_that_counts(losses);
  other->identify({"other-2", {2}});
  other->send(here->address(), rows(7, 0, 4));
  ASSERT_TRUE(eventually([&] { return !refusals.empty(); }));
  EXPECT_THAT(refusals[0], HasSubstr("it serves run other-2, here is run small-1"));
  EXPECT_TRUE(eventually([&] {  // The next write finds that its connection has gone.
    mutex.unlock();
    other->send(here->address(), rows(8, 0, 4));
    mutex.lock();
    return losses == 1;
  }));
  sender->send(here->address(), rows(9, 0, 4));  // Serves no run.
  ASSERT_TRUE(eventually([&] { return refusals.size() >= 2; }));
  EXPECT_THAT(refusals.back(), HasSubstr("no run yet"));
  here->identify({"small-1", {}});  // The coordinator.
  receiver->identify({"small-1", {}});
  receiver->send(here->address(), rows(10, 0, 4));
  ASSERT_TRUE(eventually([&] { return refusals.size() >= 3; }));
  EXPECT_THAT(refusals.back(), HasSubstr("which worker"));
  EXPECT_EQ(count_arrived, 0u);
  auto friendly = DataPlane::start(*loop, {}).value();
  friendly->identify({"small-1", {3}});
  friendly->send(here->address(), rows(0, 0, 4));
  EXPECT_TRUE(wait_for(1));
  arrived.clear();
  here.reset();
}

TEST_F(DataPlaneTest, AConnectionIsOfOneGeneration) {
  std::vector<std::string> refusals;
  auto here = plane_that_refuses(refusals);
  here->identify({"small-1", {1}});
  here->inbox().open(stream(0, 4, 100, /*generation=*/2));
  const HelloFrame hello({schema::PROTOCOL_VERSION, schema::Role::PEER, "small-1", 1, {3}});
  std::string bytes;
  for (const auto& piece : hello.pieces()) {
    bytes.append(reinterpret_cast<const char*>(piece.begin()), piece.size());
  }
  const DataPlane::Rows sent = rows(0, 0, 4, /*generation=*/2);
  const auto header = make_tensor_header(sent, false);
  const FrameHead head = frame_head(header.bytes());
  bytes.append(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes.append(reinterpret_cast<const char*>(header.bytes().data()), header.bytes().size());
  bytes.append(reinterpret_cast<const char*>(sent.payload.data()), sent.payload.size_bytes());
  const int forged = connect_to(here->address());
  ASSERT_EQ(write(forged, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ASSERT_TRUE(eventually([&] { return !refusals.empty(); }));
  EXPECT_THAT(
      refusals[0],
      HasSubstr(
          "itself w3, and sent a tensor of generation 2: its connection is for generation 1"));
  close(forged);
  EXPECT_EQ(count_arrived, 0u);
  here.reset();
}

/// A coordinator that was restarted may give a generation that it cannot know to another plan.
TEST_F(DataPlaneTest, AGenerationIsOfOneLifeOfTheCoordinator) {
  std::vector<std::string> refusals;
  auto here = plane_that_refuses(refusals);
  here->identify({"small-1", {1}, 1});
  here->inbox().open(stream(0, 4));
  std::atomic<int> losses = 0;
  auto other = plane_that_counts(losses);
  other->identify({"small-1", {2}, 1});
  other->send(here->address(), rows(0, 0, 4));
  ASSERT_TRUE(wait_for(1));
  here->identify({"small-1", {1}, 2});
  other->send(here->address(), rows(1, 0, 4));
  EXPECT_TRUE(eventually([&] { return here->statistics().dropped_headers == 1; }))
      << "the connection was made before";
  auto late = DataPlane::start(*loop, {}).value();
  late->identify({"small-1", {3}, 1});
  late->send(here->address(), rows(2, 0, 4));
  ASSERT_TRUE(eventually([&] { return !refusals.empty(); }));
  EXPECT_THAT(refusals[0], HasSubstr("life 1 of the coordinator, here is life 2"));
  late->identify({"small-1", {3}, 2});
  late->send(here->address(), rows(3, 0, 4, /*generation=*/2));
  here->inbox().open(stream(0, 4, 100, /*generation=*/2));
  EXPECT_TRUE(wait_for(2));
  arrived.clear();
  here.reset();
}

TEST_F(DataPlaneTest, OnlyWhoTakesPartInAPlanSendsItsTensors) {
  constexpr uint64_t kSecret = 1'234'567'890'123'456'789;
  std::vector<std::string> refusals;
  auto here = plane_that_refuses(refusals);
  here->identify({"small-1", {1}});
  here->set_plan_secret({2, kSecret});
  here->inbox().open(stream(0, 4, 100, /*generation=*/2));
  auto spare = DataPlane::start(*loop, {}).value();
  spare->identify({"small-1", {2}});  // The other one's number.
  spare->send(here->address(), rows(7, 0, 4, /*generation=*/2));
  ASSERT_TRUE(eventually([&] { return !refusals.empty(); }));
  EXPECT_THAT(refusals[0],
              HasSubstr("itself w2, and sent a tensor of generation 2: it does not know"));
  auto past = DataPlane::start(*loop, {}).value();
  past->identify({"small-1", {2}});
  past->set_plan_secret({2, kSecret - 1});
  past->send(here->address(), rows(8, 0, 4, /*generation=*/2));
  ASSERT_TRUE(eventually([&] { return refusals.size() >= 2; }));
  EXPECT_EQ(count_arrived, 0u);
  auto friendly = DataPlane::start(*loop, {}).value();
  friendly->identify({"small-1", {2}});
  friendly->set_plan_secret({2, kSecret});
  friendly->send(here->address(), rows(0, 0, 4, /*generation=*/2));
  EXPECT_TRUE(wait_for(1));
  arrived.clear();
  here.reset();
}

/// A neighbour may be told of the plan first.
TEST_F(DataPlaneTest, WhoHasNoMemoryForATensorSaysSoAndBlamesNobody) {
  constexpr uint64_t kLongRowFloats = 1 << 16;
  constexpr uint32_t kRows = 4'000'000'000;  // With those more than any machine can address.
  std::vector<std::pair<uint64_t, absl::Status>> lacks;
  std::vector<std::string> refusals;
  DataPlane::Options options;
  options.on_no_memory = [&](uint64_t generation, absl::Status why) {
    std::lock_guard lock(mutex);
    lacks.emplace_back(generation, std::move(why));
    changed.notify_all();
  };
  options.on_refused = [&](const std::string&, const std::string& why) {
    std::lock_guard lock(mutex);
    refusals.push_back(why);
  };
  auto here = DataPlane::start(*loop, options).value();
  const auto part = std::make_shared<std::vector<float>>(kLongRowFloats);
  for (uint64_t generation : {0, 1}) {  // Without a plan it is a probe.
    TensorInbox::StreamSpec spec = stream(0, kRows, 100, generation);
    spec.row_floats = kLongRowFloats;
    spec.parts = {{0, 1}, {1, kRows - 1}};
    here->inbox().open(std::move(spec));
    DataPlane::Rows first = rows(0, 0, 1, generation);
    first.payload = *part;
    first.owner = part;
    sender->send(here->address(), std::move(first));
    const uint64_t dropped = generation + 1;
    ASSERT_TRUE(eventually([&] { return here->statistics().dropped_headers == dropped; }));
  }
  ASSERT_TRUE(eventually([&] { return !lacks.empty(); }));
  here.reset();
  EXPECT_EQ(lacks.size(), 1u) << "only of the plan's";
  EXPECT_EQ(lacks[0].first, 1u) << "another plan may have no such tensor";
  EXPECT_TRUE(absl::IsResourceExhausted(lacks[0].second)) << lacks[0].second;
  EXPECT_THAT(refusals, testing::IsEmpty()) << "the sender has done nothing wrong";
}

TEST_F(DataPlaneTest, TensorsMayComeBeforeTheirSecret) {
  sender->set_plan_secret({2, 5});
  sender->send(receiver->address(), rows(0, 0, 4, /*generation=*/2));
  sender->send(receiver->address(), rows(1, 0, 4, /*generation=*/1));
  receiver->inbox().open(stream(0, 4, 100, /*generation=*/1));
  ASSERT_TRUE(wait_for(1)) << "of a plan without a secret, and the other one's is there";
  receiver->set_plan_secret({2, 5});
  receiver->inbox().open(stream(0, 4, 100, /*generation=*/2));
  EXPECT_TRUE(wait_for(2));
}

TEST_F(DataPlaneTest, SilentStrangersMakeWayForOneAnother) {
  for (DataPlane* each : {sender.get(), receiver.get()}) each->set_plan_secret({1, 5});
  receiver->inbox().open(stream(0, 4));
  sender->send(receiver->address(), rows(0, 0, 4));
  ASSERT_TRUE(wait_for(1));
  const HelloFrame hello({schema::PROTOCOL_VERSION, schema::Role::PEER, "", 1, {}, 0, 6});
  std::vector<int> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(connect_to(receiver->address()));
    for (const auto& piece : hello.pieces()) {
      ASSERT_EQ(write(strangers.back(), piece.begin(), piece.size()),
                static_cast<ssize_t>(piece.size()));
    }
  }
  char byte = 0;
  EXPECT_EQ(recv(strangers.front(), &byte, 1, 0), 0) << "the oldest one is closed";
  EXPECT_EQ(recv(strangers.back(), &byte, 1, MSG_DONTWAIT), -1) << "the newest one is not";
  sender->send(receiver->address(), rows(1, 0, 4));
  EXPECT_TRUE(wait_for(2)) << "nor is an older one that shows the plan's secret";
  for (int fd : strangers) close(fd);
}

TEST_F(DataPlaneTest, AHelloIsBounded) {
  std::vector<std::string> refusals;
  auto here = plane_that_refuses(refusals);
  here->identify({"small-1", {1}});
  const uint32_t version = schema::PROTOCOL_VERSION;
  const std::vector<std::pair<Hello, std::string>> breaches = {
      {{version, schema::Role::PEER, std::string(257, 'x'), 1, {3}}, "Hello.run"},
      {{version, schema::Role::PEER, "small\n1", 1, {3}}, "Hello.run"},
      {{version, schema::Role::PEER, "small-1", UINT64_MAX, {3}}, "Hello.generation"},
      {{version, schema::Role::PEER, "small-1", 1, {UINT32_MAX}}, "Hello.sender"},
      {{version, schema::Role::PEER, "small-1", 1, {3}, UINT64_MAX}, "Hello.term"},
      {{version, schema::Role::WORKER, "small-1", 1, {3}}, "takes tensors only"}};
  for (const auto& [hello, why] : breaches) {
    const size_t before = refusals.size();
    const HelloFrame frame(hello);
    const int forged = connect_to(here->address());
    for (const auto& piece : frame.pieces()) {
      ASSERT_EQ(write(forged, piece.begin(), piece.size()), static_cast<ssize_t>(piece.size()));
    }
    ASSERT_TRUE(eventually([&] { return refusals.size() > before; })) << why;
    EXPECT_THAT(refusals.back(), HasSubstr(why));
    close(forged);
  }
  here.reset();
}

TEST_F(DataPlaneTest, TellsOfAPeerThatIsNotThere) {
  std::atomic<int> losses = 0;
  auto alone = plane_that_counts(losses, 0.1);
  alone->send("no address", rows(0, 0, 4));
  EXPECT_TRUE(eventually([&] { return losses == 1; }));
}

TEST_F(DataPlaneTest, AConnectionThatIsResetBehindItsLastTensorIsLost) {
  std::atomic<int> losses = 0;
  auto writer = plane_that_counts(losses);
  Recorder peer;
  writer->send(peer.address, rows(0, 0, 4));
  const int accepted = accept(peer.fd, nullptr, nullptr);
  ASSERT_GE(accepted, 0);
  ASSERT_TRUE(eventually([&] { return writer->statistics().bytes_sent > 0; }));
  const linger at_once{1, 0};
  ASSERT_EQ(setsockopt(accepted, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  close(accepted);
  EXPECT_TRUE(eventually([&] { return losses == 1; }));
}

TEST_F(DataPlaneTest, AProcessIsDeadWhoseMachineRefusesToConnectAndNoOther) {
  // Shared: they are looked at for longer than this test lasts, if it fails.
  auto gone = std::make_shared<std::atomic<int>>(0);
  auto alive = std::make_shared<std::atomic<int>>(0);
  auto dying = std::make_unique<Recorder>();
  const std::string dying_at = dying->address;
  std::thread dies([&] {  // It accepts and closes for a while, as one does that is ending.
    for (int i = 0; i < 3; ++i) close(accept(dying->fd, nullptr, nullptr));
    dying.reset();
  });
  auto leaver = DataPlane::start(*loop, {}).value();
  const std::string left = leaver->address();
  leaver.reset();
  auto its_loop = EventLoop::start().value();  // With which its connections end.
  auto refused = std::make_shared<std::atomic<int>>(0);
  DataPlane::Options options;
  options.on_refused = [refused](const std::string&, const std::string&) { ++*refused; };
  auto living = DataPlane::start(*its_loop, options).value();
  living->identify({"run", {1}, 1});
  sender->identify({"run", {}, 1});
  sender->check_listener(living->address(), 20, [alive] { ++*alive; });
  sender->check_listener(left, 5, [gone] { ++*gone; });
  sender->check_listener(dying_at, 5, [gone] { ++*gone; });
  EXPECT_TRUE(eventually([&] { return *gone == 2; }));
  EXPECT_EQ(*alive, 0);
  dies.join();
  living.reset();
  its_loop.reset();
  EXPECT_TRUE(eventually([&] { return *alive == 1; })) << "it dies while it is looked at";
  EXPECT_EQ(*refused, 0);
}

TEST_F(DataPlaneTest, AWatchTellsOnceWhoCannotBeReachedAndNothingOfTheOthers) {
  std::mutex told_mutex;
  std::vector<std::string> told;
  DataPlane::Options options;
  options.on_unreachable = [&](const std::string& address, absl::Status) {
    std::lock_guard told_lock(told_mutex);
    told.push_back(address);
  };
  const std::unique_ptr<DataPlane> watcher = DataPlane::start(*loop, options).value();
  auto was_told = [&](size_t times) {
    std::lock_guard told_lock(told_mutex);
    return told.size() >= times;
  };
  watcher->close_before(2);
  watcher->watch(1, {"127.0.0.1:1"}, 0.1);  // Its generation is over.
  watcher->watch(2, {"127.0.0.1:1", receiver->address()}, 0.4);
  ASSERT_TRUE(eventually([&] { return was_told(1); }));
  watcher->drop_link(receiver->address(), 0);
  ASSERT_TRUE(eventually([&] { return was_told(2); }));
  // The other end is there, and then gone.
  std::atomic<int> arrivals = 0;
  auto leaver = DataPlane::start(*loop, {}).value();
  const std::string left = leaver->address();
  TensorInbox::StreamSpec probe = stream(0, 4, 100, 2);
  probe.on_tensor = [&](const TensorKey&, const TensorHandle&) { ++arrivals; };
  leaver->inbox().open(probe);
  watcher->watch(2, {left}, 0.4);
  watcher->send(left, rows(0, 0, 4, 2));
  ASSERT_TRUE(eventually([&] { return arrivals == 1; }));
  leaver.reset();
  watcher->close_before(3);
  watcher->watch(3, {left}, 0.4);
  ASSERT_TRUE(eventually([&] { return was_told(3); }));
  watcher->close_before(4);
  std::lock_guard told_lock(told_mutex);
  EXPECT_THAT(told, testing::ElementsAre("127.0.0.1:1", receiver->address(), left));
}

TEST_F(DataPlaneTest, APeerThatCameBackReceivesTheNextGeneration) {
  std::atomic<int> losses = 0;
  auto survivor = plane_that_counts(losses, 0.1);
  auto its_loop = EventLoop::start().value();  // Its sockets die with it, as a process's do.
  auto peer = DataPlane::start(*its_loop, {}).value();
  const std::string address = peer->address();
  peer->inbox().open(stream(0, 4));
  survivor->send(address, rows(0, 0, 4));
  ASSERT_TRUE(wait_for(1));

  peer.reset();
  its_loop.reset();
  ASSERT_TRUE(eventually([&] {
    survivor->send(address, rows(1, 0, 4));
    return losses > 0;
  }));

  its_loop = EventLoop::start().value();
  DataPlane::Options again;
  again.listen_address = address;
  peer = DataPlane::start(*its_loop, again).value();
  peer->inbox().open(stream(0, 4, 100, /*generation=*/2));
  survivor->close_before(2);
  survivor->send(address, rows(2, 0, 4, /*generation=*/2));
  EXPECT_TRUE(wait_for(2));
  EXPECT_EQ(losses, 1);
  arrived.clear();
  peer.reset();
  its_loop.reset();
}

TEST_F(DataPlaneTest, AWriteToAPeerThatDoesNotReadEndsWithItsGeneration) {
  std::atomic<int> losses = 0;
  auto writer = plane_that_counts(losses);
  constexpr uint32_t kRows = 1 << 18;  // 33 MiB: more than the sockets hold.
  auto pending = rows(0, 0, kRows);
  const std::weak_ptr<const void> payload = pending.owner;
  writer->send(receiver->address(), std::move(pending));  // Nobody opens its stream.
  writer->send(receiver->address(), rows(1, 0, 4));
  writer->close_before(2);
  EXPECT_TRUE(eventually([&] { return payload.expired(); }));

  receiver->inbox().open(stream(0, 4, 100, /*generation=*/2));
  writer->send(receiver->address(), rows(2, 0, 4, /*generation=*/1));
  writer->send(receiver->address(), rows(3, 0, 4, /*generation=*/2));
  ASSERT_TRUE(wait_for(1));
  EXPECT_TRUE(arrived.contains(3));
  EXPECT_EQ(losses, 0);
}

TEST_F(DataPlaneTest, ACloseInTheMiddleOfAWriteIsNoLoss) {
  std::atomic<int> losses = 0;
  auto writer = plane_that_counts(losses);
  auto pending = rows(0, 0, 1 << 18);
  const std::weak_ptr<const void> payload = pending.owner;
  writer->send(receiver->address(), std::move(pending));
  ASSERT_TRUE(eventually([&] { return writer->statistics().bytes_sent > 0; }));  // It has begun.
  writer->close_before(2);
  EXPECT_TRUE(eventually([&] { return payload.expired(); }));
  EXPECT_EQ(losses, 0);
}

TEST_F(DataPlaneTest, APeerThatIsNotThereIsNotLostOnceItsGenerationIsClosed) {
  std::atomic<int> losses = 0;
  auto alone = plane_that_counts(losses, 0.2);
  alone->send("127.0.0.1:1", rows(0, 0, 4));
  alone->close_before(2);
  alone->send("127.0.0.1:1", rows(0, 0, 4, /*generation=*/2));
  ASSERT_TRUE(eventually([&] { return losses > 0; }));
  EXPECT_EQ(losses, 1);
}

TEST_F(DataPlaneTest, ADroppedLinkIsLostAndCannotBeMadeAnew) {
  std::atomic<int> losses = 0;
  auto writer = plane_that_counts(losses, 0.1);
  for (uint64_t generation : {1, 2}) {
    receiver->inbox().open(stream(0, 4, 100, generation));
  }
  writer->send(receiver->address(), rows(1, 0, 4));
  ASSERT_TRUE(wait_for(1));
  writer->drop_link(receiver->address(), 0);
  ASSERT_TRUE(eventually([&] { return losses == 1; }));
  writer->send(receiver->address(), rows(2, 0, 4));
  writer->close_before(2);
  writer->send(receiver->address(), rows(3, 0, 4, /*generation=*/2));
  ASSERT_TRUE(eventually([&] { return losses == 2; }));
  EXPECT_EQ(count_arrived, 1u);
}

TEST_F(DataPlaneTest, ALinkThatIsDroppedForAWhileComesBack) {
  std::atomic<int> losses = 0;
  auto writer = plane_that_counts(losses);
  receiver->inbox().open(stream(0, 4));
  writer->drop_link(receiver->address(), 0.05);
  writer->send(receiver->address(), rows(0, 0, 4));
  EXPECT_TRUE(wait_for(1));
  EXPECT_EQ(losses, 0);
}

TEST_F(DataPlaneTest, ADroppedLinkLeavesOtherPeersAlone) {
  std::atomic<int> losses = 0;
  auto writer = plane_that_counts(losses);
  receiver->inbox().open(stream(0, 4));
  writer->send(receiver->address(), rows(0, 0, 4));
  writer->drop_link(sender->address(), 0);
  writer->send(receiver->address(), rows(1, 0, 4));
  EXPECT_TRUE(wait_for(2));
  EXPECT_EQ(losses, 0);
}

TEST_F(DataPlaneTest, GenerationsCloseInAnyOrderAndTwice) {
  receiver->inbox().open(stream(0, 4, 100, /*generation=*/3));
  for (uint64_t generation : {3, 3, 1, 0, 2}) {
    sender->close_before(generation);
    receiver->close_before(generation);
  }
  sender->send(receiver->address(), rows(2, 0, 4, /*generation=*/2));
  sender->send(receiver->address(), rows(3, 0, 4, /*generation=*/3));
  ASSERT_TRUE(wait_for(1));
  EXPECT_TRUE(arrived.contains(3));
}

}  // namespace
}  // namespace skein::net
