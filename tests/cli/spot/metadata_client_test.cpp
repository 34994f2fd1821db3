#include "cli/spot/metadata_client.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

/// A server for one connection: reads what is asked, does `act` with the connection, closes it.
class OneAnswer {
 public:
  explicit OneAnswer(std::function<void(int connection)> act) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes);
    url_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this, act = std::move(act)] {
      const int connection = accept(listener_, nullptr, nullptr);
      while (!asked_.ends_with("\r\n\r\n")) {
        char byte = 0;
        if (read(connection, &byte, 1) != 1) break;
        asked_ += byte;
      }
      act(connection);
      close(connection);
    });
  }
  ~OneAnswer() {
    join();
    close(listener_);
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  const std::string& url() const { return url_; }
  const std::string& asked() const { return asked_; }  // After `join`.

 private:
  int listener_ = -1;
  std::string url_;
  std::string asked_;
  std::thread thread_;
};

void say(int connection, const std::string& text) {
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t now = send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return;
    sent += static_cast<size_t>(now);
  }
}

std::string with_body(int status, const std::string& body) {
  return absl::StrCat("HTTP/1.1 ", status, " X\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

TEST(MetadataClient, TakesAddressesOnly) {
  for (const char* good : {kMetadataUrl, "http://localhost:8080", "http://127.0.0.1:1/",
                           "http://[fd00:ec2::254]", "http://[::1]:80"}) {
    EXPECT_TRUE(MetadataClient::make(good).ok()) << good;
  }
  for (const char* bad :
       {"", "169.254.169.254", "https://169.254.169.254", "http://",
        "http://metadata.google.internal", "http://1.2.3.4/latest", "http://1.2.3.4:0",
        "http://1.2.3.4:65536", "http://1.2.3.4:x", "http://1.2.3.4:", "http://[::1",
        "http://[::1]x", "http://[]", "http://user@1.2.3.4"}) {
    EXPECT_EQ(MetadataClient::make(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(MetadataClient, SendsMethodPathAndHeadersAndGivesStatusAndBody) {
  OneAnswer server([](int connection) { say(connection, with_body(404, "none")); });
  const auto client = *MetadataClient::make(server.url());
  const MetadataAnswer answer = client->ask({"PUT", "/a/b?c=d&e=f", {{"X-One", "1"}}});
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.body, "none");
  server.join();
  EXPECT_TRUE(server.asked().starts_with("PUT /a/b?c=d&e=f HTTP/1.1\r\n")) << server.asked();
  EXPECT_NE(server.asked().find("\r\nX-One: 1\r\n"), std::string::npos) << server.asked();
}

TEST(MetadataClient, WhatIsNoAnswerHasStatusZero) {
  const std::string half = "HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nhalf";
  for (const std::string& reply : {std::string(), std::string("garbage\r\n\r\n"), half,
                                   with_body(200, std::string(100 << 10, 'x'))}) {
    OneAnswer server([&](int connection) { say(connection, reply); });
    const auto client = *MetadataClient::make(server.url());
    EXPECT_EQ(client->ask({"GET", "/", {}}).status, 0) << reply.substr(0, 30);
  }
}

TEST(MetadataClient, NobodyThereIsStatusZero) {
  std::string url;
  {
    OneAnswer server([](int) {});
    url = server.url();
    (void)(*MetadataClient::make(url))->ask({"GET", "/", {}});
  }
  EXPECT_EQ((*MetadataClient::make(url))->ask({"GET", "/", {}}).status, 0);
}

TEST(MetadataClient, StopEndsAQuestionThatNobodyAnswers) {
  std::promise<void> accepted;
  std::promise<void> ended;
  OneAnswer server([&](int) {
    accepted.set_value();
    ended.get_future().wait();
  });
  const auto client = *MetadataClient::make(server.url());
  auto answer = std::async(std::launch::async, [&] { return client->ask({"GET", "/", {}}); });
  accepted.get_future().wait();
  client->stop();
  EXPECT_EQ(answer.get().status, 0);
  ended.set_value();
  EXPECT_EQ(client->ask({"GET", "/", {}}).status, 0);  // Nobody is asked any more.
}

}  // namespace
}  // namespace skein::cli
