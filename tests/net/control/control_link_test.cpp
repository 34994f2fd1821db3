#include "net/control/control_link.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "net/codec/bounds.hpp"
#include "net/control/hello.hpp"

namespace skein::net {
namespace {

using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(20);

/// What one side of a link has seen.
struct Seen {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Envelope> messages;
  std::vector<absl::Status> closings;
  std::vector<std::string> rejections;
  std::vector<std::string> rejected_peers;  // As many.
  std::shared_ptr<ControlLink> link;

  ControlLink::Handlers handlers() {
    return {[this](Envelope message) {
              std::lock_guard lock(mutex);
              messages.push_back(std::move(message));
              changed.notify_all();
            },
            [this](absl::Status why) {
              std::lock_guard lock(mutex);
              closings.push_back(std::move(why));
              changed.notify_all();
            }};
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, condition);
  }
};

struct ControlLinkTest : testing::Test {
  ControlLinkTest() : loop(EventLoop::start().value()) {
    listener = listen_control(
                   *loop, {},
                   [this](std::shared_ptr<ControlLink> link, schema::Role) {
                     std::lock_guard lock(server.mutex);
                     if (admits) link->admit();
                     server.link = std::move(link);
                     server.changed.notify_all();
                     return server.handlers();
                   },
                   [this](const std::string& peer, const std::string& reason) {
                     std::lock_guard lock(server.mutex);
                     server.rejected_peers.push_back(peer);
                     server.rejections.push_back(reason);
                     server.changed.notify_all();
                   })
                   .value();
  }
  ~ControlLinkTest() override {
    listener.reset();
    client.link.reset();
    server.link.reset();
    loop.reset();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(listener->port()); }

  absl::Status connect(uint32_t version = schema::PROTOCOL_VERSION,
                       schema::Role role = schema::Role::WORKER) {
    std::promise<absl::Status> done;
    connect_control(*loop, {.address = address(), .role = role, .protocol_version = version},
                    client.handlers(), [&](absl::StatusOr<std::shared_ptr<ControlLink>> link) {
                      if (link.ok()) client.link = *link;
                      done.set_value(link.status());
                    });
    return done.get_future().get();
  }

  void connect_raw(int fd) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(listener->port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }

  /// Sends raw bytes and waits until they are turned away.
  std::string send_raw(const std::string& bytes) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    connect_raw(fd);
    EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    shutdown(fd, SHUT_WR);
    EXPECT_TRUE(server.wait([&] { return !server.rejections.empty(); }));
    close(fd);
    std::lock_guard lock(server.mutex);
    return server.rejections.empty() ? "" : server.rejections.back();
  }

  std::atomic<bool> admits = true;
  std::unique_ptr<EventLoop> loop;
  Seen server, client;
  std::unique_ptr<ControlListener> listener;
};

ControlMessage numbered(uint64_t number) { return encode({.generation = number}, Start()); }

TEST_F(ControlLinkTest, DeliversMessagesInOrderBothWays) {
  ASSERT_TRUE(connect().ok());
  ASSERT_TRUE(server.wait([&] { return server.link != nullptr; }));
  constexpr uint64_t kCount = 3000;
  for (uint64_t i = 0; i < kCount; ++i) {
    client.link->send(numbered(i));
    server.link->send(numbered(kCount + i));
  }
  ASSERT_TRUE(server.wait([&] { return server.messages.size() == kCount; }));
  ASSERT_TRUE(client.wait([&] { return client.messages.size() == kCount; }));
  for (uint64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(server.messages[i].head.generation, i);
    EXPECT_EQ(client.messages[i].head.generation, kCount + i);
  }
}

TEST_F(ControlLinkTest, CloseWritesWhatIsQueuedAndTellsBothOnce) {
  ASSERT_TRUE(connect().ok());
  for (uint64_t i = 0; i < 100; ++i) client.link->send(numbered(i));
  client.link->close();
  ASSERT_TRUE(server.wait([&] { return !server.closings.empty(); }));
  ASSERT_TRUE(client.wait([&] { return !client.closings.empty(); }));
  EXPECT_EQ(server.messages.size(), 100u);
  EXPECT_EQ(server.closings.size(), 1u);
  EXPECT_EQ(client.closings.size(), 1u);
  client.link->send(numbered(1));
  client.link->close();
}

TEST_F(ControlLinkTest, AMessageOutOfItsBoundsEndsTheLinkWithWhatAndWhere) {
  ASSERT_TRUE(connect().ok());
  client.link->send(numbered(1));
  client.link->send(encode({}, SnapshotKept{0, kStepsMax + 1}));
  client.link->send(numbered(2));
  ASSERT_TRUE(server.wait([&] { return !server.closings.empty(); }));
  EXPECT_EQ(server.messages.size(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(server.closings[0])) << server.closings[0];
  EXPECT_THAT(std::string(server.closings[0].message()), HasSubstr("SnapshotKept.step is "));
}

ControlMessage megabyte() {
  return encode({}, RendezvousEntry{"a key", std::vector<char>(kRendezvousBytesMax), {}});
}

TEST_F(ControlLinkTest, ShortMessagesKeepTheirOrderBehindWhatASocketDoesNotTakeAtOnce) {
  ASSERT_TRUE(connect().ok());
  constexpr uint64_t kPairs = 6;  // Less than a link takes before they are handled.
  for (uint64_t i = 0; i < kPairs; ++i) {
    client.link->send(megabyte());
    client.link->send(numbered(i));
    if (i != kPairs / 2) continue;
    ASSERT_TRUE(server.wait([&] { return server.messages.size() == 2 * i + 2; }));
  }
  client.link->close();
  ASSERT_TRUE(server.wait([&] { return !server.closings.empty(); }));
  ASSERT_EQ(server.messages.size(), 2 * kPairs);
  for (uint64_t i = 0; i < kPairs; ++i) {
    EXPECT_TRUE(std::holds_alternative<RendezvousEntry>(server.messages[2 * i].body));
    EXPECT_EQ(server.messages[2 * i + 1].head.generation, i);
  }
}

TEST_F(ControlLinkTest, LessOfAStrangerWaitsToBeHandled) {
  admits = false;
  ASSERT_TRUE(connect().ok());
  constexpr size_t kCount = 200;
  for (size_t i = 0; i < kCount; ++i) client.link->send(numbered(i));
  ASSERT_TRUE(server.wait([&] { return server.messages.size() > 10; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // Longer than the others take.
  {
    std::lock_guard lock(server.mutex);
    EXPECT_LT(server.messages.size(), kCount);
  }
  server.link->admit();
  EXPECT_TRUE(server.wait([&] { return server.messages.size() == kCount; }));
}

TEST_F(ControlLinkTest, AViewerIsReadOnOnlyWhenWhatItSaidIsHandled) {
  admits = false;
  ASSERT_TRUE(connect(schema::PROTOCOL_VERSION, schema::Role::VIEWER).ok());
  constexpr size_t kCount = 3;  // One of them is more than may wait.
  for (size_t i = 0; i < kCount; ++i) client.link->send(megabyte());
  for (size_t handled = 0; handled < kCount; ++handled) {
    ASSERT_TRUE(server.wait([&] { return !server.messages.empty(); })) << handled;
    // Longer than the pause after a viewer's message.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::lock_guard lock(server.mutex);
    EXPECT_EQ(server.messages.size(), 1u) << handled;
    server.messages.clear();
  }
}

TEST_F(ControlLinkTest, AClosedLinkEndsThoughItsPeerDoesNotRead) {
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  connect_raw(silent);
  const HelloFrame hello({schema::PROTOCOL_VERSION, schema::Role::WORKER});
  for (const auto& piece : hello.pieces()) {
    ASSERT_EQ(write(silent, piece.begin(), piece.size()), static_cast<ssize_t>(piece.size()));
  }
  ASSERT_TRUE(server.wait([&] { return server.link != nullptr; }));
  for (int i = 0; i < 16; ++i) server.link->send(megabyte());
  server.link->close();
  EXPECT_TRUE(server.wait([&] { return !server.closings.empty(); }));
  close(silent);
}

TEST_F(ControlLinkTest, ReadsOnlyAsMuchAsIsHandledAndGoesOnWhenItIs) {
  ASSERT_TRUE(connect().ok());
  constexpr size_t kCount = 20;
  for (size_t i = 0; i < kCount; ++i) client.link->send(megabyte());
  const size_t most = kIntakeBytesMax / kRendezvousBytesMax + 1;
  ASSERT_TRUE(server.wait([&] { return server.messages.size() + 1 >= most; }));
  client.link->close();  // Behind all of them.
  for (size_t handled = 0; handled < kCount;) {
    ASSERT_TRUE(server.wait([&] { return !server.messages.empty(); })) << handled;
    std::lock_guard lock(server.mutex);
    EXPECT_LE(server.messages.size(), most);
    handled += server.messages.size();
    server.messages.clear();
  }
}

TEST_F(ControlLinkTest, ALinkWhosePeerDoesNotReadIsBoundedInBytes) {
  ASSERT_TRUE(connect().ok());
  const size_t count = 4 * kLinkQueueBytesMax / kRendezvousBytesMax;
  for (size_t i = 0; i < count; ++i) client.link->send(megabyte());
  ASSERT_TRUE(client.wait([&] { return !client.closings.empty(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(client.closings[0])) << client.closings[0];
  EXPECT_THAT(std::string(client.closings[0].message()), HasSubstr("does not read"));
}

TEST_F(ControlLinkTest, TurnsLongHellosAwayBeforeReadingThem) {
  EXPECT_THAT(send_raw(std::string("SKN1\x01\x02\x00\x00", 8)), HasSubstr("words; at most"));
}

TEST_F(ControlLinkTest, TurnsGarbageAway) {
  EXPECT_THAT(send_raw("GET / HTTP/1.1\r\nHost: here\r\n\r\n"), HasSubstr("no Skein message"));
}

TEST_F(ControlLinkTest, TurnsHugeFramesAwayBeforeReadingThem) {
  EXPECT_THAT(send_raw(std::string("SKN1\xff\xff\xff\x7f", 8)), HasSubstr("words; at most"));
}

TEST_F(ControlLinkTest, TurnsTruncatedFramesAway) {
  EXPECT_THAT(send_raw(std::string("SKN1\x04\x00\x00\x00half", 12)), HasSubstr("ends after"));
}

TEST_F(ControlLinkTest, TurnsMalformedMessagesAway) {
  EXPECT_FALSE(send_raw(std::string("SKN1\x02\x00\x00\x00", 8) + std::string(16, '\xff')).empty());
}

TEST_F(ControlLinkTest, AnswersAnotherProtocolVersionWithWhatToDo) {
  ASSERT_TRUE(connect(schema::PROTOCOL_VERSION + 1).ok());
  ASSERT_TRUE(client.wait([&] { return !client.messages.empty(); }));
  const auto* refused = std::get_if<Refused>(&client.messages[0].body);
  ASSERT_NE(refused, nullptr);
  EXPECT_THAT(refused->reason, HasSubstr("same release"));
  EXPECT_EQ(server.link, nullptr);
}

/// "127.0.0.1:45812", as the other end calls it.
std::string name_of_caller(int fd) {
  sockaddr_in here{};
  socklen_t size = sizeof(here);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size), 0);
  return "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
}

/// As many files as the system lets this process open; both ends of each connection are here.
void allow_many_files() {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
}

TEST_F(ControlLinkTest, OfTooManySilentConnectionsTheOldestMakeWayForWhoeverSpeaks) {
  allow_many_files();
  constexpr size_t kSilentMax = 512;
  constexpr size_t kMore = 8;
  std::vector<int> silent(kSilentMax + kMore);
  for (int& each : silent) {
    each = socket(AF_INET, SOCK_STREAM, 0);
    connect_raw(each);
  }
  ASSERT_TRUE(connect().ok());
  // Sooner than silence ends a connection.
  EXPECT_TRUE(server.wait([&] { return server.link != nullptr; })) << "the newcomer is dropped";
  {
    std::lock_guard lock(server.mutex);
    std::vector<std::string> oldest;
    for (size_t i = 0; i < kMore + 1; ++i) oldest.push_back(name_of_caller(silent[i]));
    EXPECT_EQ(server.rejected_peers, oldest);
    EXPECT_THAT(server.rejections, testing::Each(HasSubstr("while others came")));
  }
  for (const int each : silent) close(each);
}

/// Longer than the pause after a failed accept: the next attempt fails as well.
TEST_F(ControlLinkTest, TakesConnectionsAgainAfterAShortageOfDescriptors) {
  std::vector<int> callers(5);
  for (int& each : callers) each = socket(AF_INET, SOCK_STREAM, 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = dup(callers[0]);
  close(lowest_free);
  rlimit scarce = before;
  scarce.rlim_cur = static_cast<rlim_t>(lowest_free);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &scarce), 0);
  for (const int each : callers) connect_raw(each);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (const int each : callers) close(each);
  EXPECT_TRUE(connect().ok());
  EXPECT_TRUE(server.wait([&] { return server.link != nullptr; })) << "deaf";
}

TEST_F(ControlLinkTest, SaysWhenNobodyListens) {
  std::promise<absl::Status> done;
  connect_control(
      *loop, {.address = "127.0.0.1:1", .timeout_seconds = 0}, client.handlers(),
      [&](absl::StatusOr<std::shared_ptr<ControlLink>> link) { done.set_value(link.status()); });
  EXPECT_TRUE(absl::IsUnavailable(done.get_future().get()));
}

size_t entries(const char* folder) {
  const auto begin = std::filesystem::directory_iterator(folder);
  return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator{}));
}

/// A listener whose connections are reset as soon as they are there.
struct ResettingServer {
  ResettingServer() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd, 16), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
    thread = std::thread([this] {
      const linger none = {1, 0};
      for (int peer = accept(fd, nullptr, nullptr); peer >= 0;
           peer = accept(fd, nullptr, nullptr)) {
        setsockopt(peer, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
        close(peer);
      }
    });
  }
  ~ResettingServer() {
    shutdown(fd, SHUT_RDWR);
    thread.join();
    close(fd);
  }
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  uint16_t port = 0;
  std::thread thread;
};

TEST(ControlLink, WhoeverIsResetAtOnceHearsOfIt) {
  const auto loop = EventLoop::start().value();
  ResettingServer server;
  ConnectOptions options;
  options.address = "127.0.0.1:" + std::to_string(server.port);
  options.timeout_seconds = 0;  // One attempt.
  for (int i = 0; i < 300; ++i) {
    Seen seen;
    std::shared_ptr<ControlLink> link;
    connect_control(*loop, options, seen.handlers(),
                    [&](absl::StatusOr<std::shared_ptr<ControlLink>> opened) {
                      std::lock_guard lock(seen.mutex);
                      if (opened.ok()) link = *opened;
                      if (!opened.ok()) seen.closings.push_back(opened.status());
                      seen.changed.notify_all();
                    });
    ASSERT_TRUE(seen.wait([&] { return seen.closings.size() == 1; })) << "attempt " << i;
  }
}

TEST(EventLoop, LeavesNoThreadAndNoDescriptorBehind) {
  auto cycle = [] {
    auto loop = EventLoop::start().value();
    auto listener = listen_control(
        *loop, {}, [](auto, auto) { return ControlLink::Handlers{}; }, [](auto&, auto&) {});
    ASSERT_TRUE(listener.ok());
  };
  cycle();
  const size_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  // The kernel lists a thread for a moment after it was joined.
  for (int i = 0; i < 1000 && entries("/proc/self/task") > threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(entries("/proc/self/task"), threads);
}

}  // namespace
}  // namespace skein::net
