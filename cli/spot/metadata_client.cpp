#include "cli/spot/metadata_client.hpp"

#include <arpa/inet.h>

#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include <httplib.h>

namespace skein::cli {
namespace {

constexpr time_t kConnectMicroseconds = 500'000;  // The service is on the same host: < 1 ms.
constexpr time_t kReadSeconds = 3;                // Azure sometimes takes seconds.
constexpr size_t kBodyBytesMax = 64 << 10;        // A scale set's events are a few KiB.

struct HostAndPort {
  std::string host;
  int port = 80;
};

bool is_address(const std::string& host) {
  in6_addr bytes{};  // Large enough for both.
  return host == "localhost" || inet_pton(AF_INET, host.c_str(), &bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

std::optional<HostAndPort> parse_url(const std::string& url) {
  const std::string scheme = "http://";
  if (!url.starts_with(scheme)) return std::nullopt;
  std::string rest = url.substr(scheme.size());
  if (rest.ends_with("/")) rest.pop_back();
  HostAndPort parsed;
  const size_t bracket = rest.starts_with("[") ? rest.find(']') : std::string::npos;
  const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  parsed.host = rest.substr(0, colon);
  if (bracket != std::string::npos) {
    if (parsed.host.size() != bracket + 1) return std::nullopt;
    parsed.host = parsed.host.substr(1, bracket - 1);
  }
  if (!is_address(parsed.host)) return std::nullopt;
  if (colon == std::string::npos) return parsed;
  const bool is_port = absl::SimpleAtoi(rest.substr(colon + 1), &parsed.port) && parsed.port > 0 &&
                       parsed.port < 65536;
  return is_port ? std::optional(parsed) : std::nullopt;
}

class HttpMetadataClient final : public MetadataClient {
 public:
  explicit HttpMetadataClient(const HostAndPort& where) : client_(where.host, where.port) {
    client_.set_connection_timeout(0, kConnectMicroseconds);
    client_.set_read_timeout(kReadSeconds, 0);
    client_.set_write_timeout(kReadSeconds, 0);
    client_.set_keep_alive(false);
  }

  MetadataAnswer ask(const MetadataRequest& request) override {
    if (is_stopped_) return {};
    try {  // The library throws on lack of memory, and where its regular expressions do.
      return send(request);
    } catch (const std::exception&) {
      return {};
    }
  }

  void stop() override {
    is_stopped_ = true;
    try {
      client_.stop();
    } catch (const std::exception&) {  // Then the question ends by its time-out.
    }
  }

 private:
  MetadataAnswer send(const MetadataRequest& request) {
    MetadataAnswer answer;
    httplib::Request asked;
    asked.method = request.method;
    asked.path = request.path;
    for (const auto& [name, value] : request.headers) asked.headers.emplace(name, value);
    asked.content_receiver = [&](const char* bytes, size_t count, uint64_t, uint64_t) {
      answer.body.append(bytes, count);
      return answer.body.size() <= kBodyBytesMax && !is_stopped_;
    };
    const httplib::Result result = client_.send(asked);
    if (!result) return {};
    answer.status = result->status;
    return answer;
  }

  httplib::Client client_;
  std::atomic<bool> is_stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetadataClient>> MetadataClient::make(const std::string& base_url) {
  const std::optional<HostAndPort> where = parse_url(base_url);
  if (!where) {
    return absl::InvalidArgumentError(
        absl::StrCat("--spot-url is ", base_url, "; give http://ADDRESS or http://ADDRESS:PORT, ",
                     "with a number as the address, such as ", kMetadataUrl));
  }
  try {
    return std::make_unique<HttpMetadataClient>(*where);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("cannot ask ", base_url, ": ", error.what()));
  }
}

}  // namespace skein::cli
