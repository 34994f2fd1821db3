#include "cli/config/cluster_file.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/config/job_keys.hpp"
#include "cli/config/text_file.hpp"
#include "cli/config/toml_parser.hpp"
#include "cli/config/toml_text.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

constexpr double kBytesPerGigabit = 1e9 / 8;
constexpr double kBytesPerGigabyte = 1e9;
/// Devices that `devices = N` may make: ten times the largest cluster in mind.
constexpr int64_t kDevicesMax = 100'000;

// What a host has unless the file says otherwise: devices on PCI Express, a ten gigabit card.
constexpr double kInsideGbps = 100;
constexpr double kInsideLatencyUs = 5;
constexpr double kNetworkGbps = 10;
constexpr double kNetworkLatencyUs = 30;

/// What to add where somebody has given a job file.
std::string job_file_hint(const std::string& key) {
  static constexpr std::string_view kSections[] = {"job", "model", "data", "training"};
  if (std::find(std::begin(kSections), std::end(kSections), key) == std::end(kSections)) return "";
  return "; that is a section of a job file, and a cluster file is expected here (jobs that share "
         "workers are given by --beside)";
}

/// Reads the values of one table of the file and remembers the first complaint.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string name, const std::string& file)
      : table_(table), name_(std::move(name)), file_(file) {}

  void check_keys(const std::vector<std::string>& known) {
    for (const auto& [key_node, node] : table_) {
      const std::string key(key_node.str());
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        complain(key_node.source().begin.line, key,
                 absl::StrCat("unknown key", suggestion(key, known), job_file_hint(key)));
      }
    }
  }
  bool has(const char* key) const { return table_.contains(key); }

  void text(const char* key, std::string& value) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    if (!node->is_string() || node->as_string()->get().empty()) {
      return complain(node->source().begin.line, key,
                      absl::StrCat("expected a name in quotes, got ", text_of(*node)));
    }
    value = node->as_string()->get();
  }
  /// A number above 0, or also 0 where `may_be_zero`.
  void number(const char* key, double& value, bool may_be_zero) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const double given = node->is_number() ? *node->value<double>() : -1;
    if (!std::isfinite(given) || given < 0 || (given == 0 && !may_be_zero)) {
      return complain(node->source().begin.line, key,
                      absl::StrCat("expected a number ", may_be_zero ? "of 0 or more" : "above 0",
                                   ", got ", text_of(*node)));
    }
    value = given;
  }
  void count(const char* key, int64_t& value) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const int64_t given = node->is_integer() ? node->as_integer()->get() : 0;
    if (given < 1 || given > kDevicesMax) {
      return complain(
          node->source().begin.line, key,
          absl::StrCat("expected an integer from 1 to ", kDevicesMax, ", got ", text_of(*node)));
    }
    value = given;
  }
  /// The tables of `[[...key]]`; empty if there is none.
  std::vector<const toml::table*> tables(const char* key) {
    std::vector<const toml::table*> result;
    const toml::node* node = table_.get(key);
    if (node == nullptr) return result;
    const toml::array* list = node->as_array();
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      if (const toml::table* table = (*list)[i].as_table()) result.push_back(table);
    }
    if (list == nullptr || result.size() != list->size()) {
      complain(node->source().begin.line, key, absl::StrCat("write [[", full_name(key), "]]"));
    }
    return result;
  }
  uint32_t line(const char* key) const {
    const toml::node* node = table_.get(key);
    return (node == nullptr ? table_.source() : node->source()).begin.line;
  }
  const toml::node* node(const char* key) const { return table_.get(key); }

  void complain(uint32_t line, const std::string& key, const std::string& what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(file_, ":", line, ": ", full_name(key), ": ", what));
  }
  const absl::Status& status() const { return status_; }

 private:
  std::string full_name(const std::string& key) const {
    return name_.empty() ? key : absl::StrCat(name_, ".", key);
  }

  const toml::table& table_;
  std::string name_;
  const std::string& file_;
  absl::Status status_;
};

const std::vector<std::string> kDeviceKeys = {"speed", "memory_gb", "price_per_hour",
                                              "failures_per_hour"};

std::vector<std::string> joined(std::vector<std::string> names,
                                const std::vector<std::string>& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

void read_device(TableReader& reader, plans::ClusterDevice& device) {
  double memory_gb = static_cast<double>(device.memory_bytes) / kBytesPerGigabyte;
  reader.number("speed", device.speed, false);
  reader.number("memory_gb", memory_gb, true);
  reader.number("price_per_hour", device.price_per_hour, true);
  reader.number("failures_per_hour", device.failures_per_hour, true);
  device.memory_bytes = static_cast<int64_t>(std::llround(memory_gb * kBytesPerGigabyte));
}

plans::LinkSpeed read_link(TableReader& reader, const char* gbps_key, const char* latency_key,
                           double gbps, double latency_us) {
  reader.number(gbps_key, gbps, false);
  reader.number(latency_key, latency_us, true);
  return {gbps * kBytesPerGigabit, latency_us};
}

/// Adds the devices of one host: `devices = N` equal ones, or one per [[host.device]].
absl::Status read_devices(TableReader& reader, const std::string& file, int32_t host,
                          plans::ClusterSpec& cluster) {
  const std::string name = cluster.hosts.back().name;
  plans::ClusterDevice usual;
  usual.host = host;
  read_device(reader, usual);
  const std::vector<const toml::table*> tables = reader.tables("device");
  int64_t count = tables.empty() ? 1 : 0;
  if (!tables.empty() && reader.has("devices")) {
    reader.complain(reader.line("devices"), "devices", "give either it or [[host.device]] tables");
  }
  reader.count("devices", count);
  SKEIN_RETURN_IF_ERROR(reader.status());
  for (int64_t i = 0; i < count; ++i) {
    usual.name = count == 1 ? name : absl::StrCat(name, ":", i);
    cluster.devices.push_back(usual);
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    plans::ClusterDevice device = usual;
    device.name = absl::StrCat(name, ":", i);
    TableReader inner(*tables[i], "host.device", file);
    inner.check_keys(joined({"name"}, kDeviceKeys));
    inner.text("name", device.name);
    read_device(inner, device);
    SKEIN_RETURN_IF_ERROR(inner.status());
    cluster.devices.push_back(device);
  }
  return absl::OkStatus();
}

absl::Status read_host(const toml::table& table, const std::string& file,
                       plans::ClusterSpec& cluster) {
  TableReader reader(table, "host", file);
  reader.check_keys(joined({"name", "devices", "device", "inside_gbps", "inside_latency_us",
                            "network_gbps", "network_latency_us"},
                           kDeviceKeys));
  SKEIN_RETURN_IF_ERROR(reader.status());
  plans::ClusterHost host;
  host.name = absl::StrCat("host", cluster.hosts.size());
  reader.text("name", host.name);
  for (const plans::ClusterHost& other : cluster.hosts) {
    if (other.name == host.name) {
      reader.complain(reader.line("name"), "name",
                      absl::StrCat("there is a host ", host.name, " already"));
    }
  }
  host.inside =
      read_link(reader, "inside_gbps", "inside_latency_us", kInsideGbps, kInsideLatencyUs);
  host.network =
      read_link(reader, "network_gbps", "network_latency_us", kNetworkGbps, kNetworkLatencyUs);
  SKEIN_RETURN_IF_ERROR(reader.status());
  cluster.hosts.push_back(host);
  return read_devices(reader, file, static_cast<int32_t>(cluster.hosts.size()) - 1, cluster);
}

/// The index of the host that a [[link]] names, or -1 and a complaint.
int32_t host_index(TableReader& reader, const toml::node& node, const plans::ClusterSpec& cluster) {
  std::vector<std::string> names;
  const std::string name = node.is_string() ? std::string(node.as_string()->get()) : text_of(node);
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    if (cluster.hosts[h].name == name) return static_cast<int32_t>(h);
    names.push_back(cluster.hosts[h].name);
  }
  reader.complain(node.source().begin.line, "hosts",
                  absl::StrCat("there is no host ", name, suggestion(name, names)));
  return -1;
}

absl::Status read_link_table(const toml::table& table, const std::string& file,
                             plans::ClusterSpec& cluster) {
  TableReader reader(table, "link", file);
  reader.check_keys({"hosts", "gbps", "latency_us"});
  SKEIN_RETURN_IF_ERROR(reader.status());
  const toml::node* hosts = reader.node("hosts");
  const toml::array* pair = hosts == nullptr ? nullptr : hosts->as_array();
  if (pair == nullptr || pair->size() != 2) {
    reader.complain(reader.line("hosts"), "hosts", "expected two names such as [\"a\", \"b\"]");
    return reader.status();
  }
  plans::ClusterLink link;
  link.host_a = host_index(reader, (*pair)[0], cluster);
  link.host_b = host_index(reader, (*pair)[1], cluster);
  if (link.host_a == link.host_b) {
    reader.complain(reader.line("hosts"), "hosts", "expected two different hosts");
  }
  if (!reader.has("gbps")) reader.complain(reader.line("gbps"), "gbps", "missing");
  link.speed = read_link(reader, "gbps", "latency_us", kNetworkGbps, 2 * kNetworkLatencyUs);
  SKEIN_RETURN_IF_ERROR(reader.status());
  cluster.links.push_back(link);
  return absl::OkStatus();
}

std::string link_text(const char* prefix, const plans::LinkSpeed& speed) {
  return absl::StrCat(prefix, "gbps = ", toml_number(speed.bytes_per_second / kBytesPerGigabit),
                      "\n", prefix, "latency_us = ", toml_number(speed.latency_us), "\n");
}

}  // namespace

absl::StatusOr<plans::ClusterSpec> parse_cluster(const std::string& text, const std::string& file) {
  toml::parse_result result = toml::parse(text, file);
  if (!result) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":", result.error().source().begin.line,
                                                   ": ",
                                                   std::string(result.error().description())));
  }
  plans::ClusterSpec cluster;
  TableReader reader(result.table(), "", file);
  reader.check_keys({"host", "link"});
  const std::vector<const toml::table*> hosts = reader.tables("host");
  const std::vector<const toml::table*> links = reader.tables("link");
  if (hosts.empty()) reader.complain(1, "host", "there is none; write at least one [[host]]");
  SKEIN_RETURN_IF_ERROR(reader.status());
  for (const toml::table* host : hosts) SKEIN_RETURN_IF_ERROR(read_host(*host, file, cluster));
  for (const toml::table* link : links) {
    SKEIN_RETURN_IF_ERROR(read_link_table(*link, file, cluster));
  }
  if (absl::Status status = plans::validate(cluster); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", std::string(status.message())));
  }
  return cluster;
}

absl::StatusOr<plans::ClusterSpec> load_cluster(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "cluster file"));
  return parse_cluster(text, path);
}

std::string to_toml(const plans::ClusterSpec& cluster) {
  std::string text;
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    const plans::ClusterHost& host = cluster.hosts[h];
    absl::StrAppend(&text, "[[host]]\nname = ", toml_string(host.name), "\n",
                    link_text("inside_", host.inside), link_text("network_", host.network));
    for (const plans::ClusterDevice& device : cluster.devices) {
      if (static_cast<size_t>(device.host) != h) continue;
      const double memory_gb = static_cast<double>(device.memory_bytes) / kBytesPerGigabyte;
      absl::StrAppend(&text, "[[host.device]]\nname = ", toml_string(device.name),
                      "\nspeed = ", toml_number(device.speed),
                      "\nmemory_gb = ", toml_number(memory_gb),
                      "\nprice_per_hour = ", toml_number(device.price_per_hour),
                      "\nfailures_per_hour = ", toml_number(device.failures_per_hour), "\n");
    }
    text += "\n";
  }
  for (const plans::ClusterLink& link : cluster.links) {
    absl::StrAppend(&text, "[[link]]\nhosts = [",
                    toml_string(cluster.hosts[static_cast<size_t>(link.host_a)].name), ", ",
                    toml_string(cluster.hosts[static_cast<size_t>(link.host_b)].name), "]\n",
                    link_text("", link.speed), "\n");
  }
  return text;
}

}  // namespace skein::cli
