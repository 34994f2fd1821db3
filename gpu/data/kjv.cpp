#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/data/token_file.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

extern char** environ;

namespace skein::gpu {
namespace {

constexpr const char* kProgram = "bible";
/// The whole text has 4.4 MB; much less means that the program failed.
constexpr size_t kLeastBytes = 4'000'000;
constexpr size_t kMostBytes = 16'000'000;

absl::StatusOr<std::string> output_of_bible() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("no pipe: ", strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  char program[] = "bible", flag[] = "-f", range[] = "gen1:1-rev22:21";
  char* arguments[] = {program, flag, range, nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, kProgram, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return absl::NotFoundError(absl::StrCat("data.dataset = \"kjv\" needs the program `bible` (",
                                            strerror(error),
                                            "); install it with: apt-get install bible-kjv"));
  }
  std::string text;
  std::array<char, 1 << 16> piece;
  ssize_t got = 0;
  while (text.size() < kMostBytes && (got = read(ends[0], piece.data(), piece.size())) > 0) {
    text.append(piece.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0 || text.size() < kLeastBytes) {
    return absl::DataLossError(absl::StrCat("the program `bible` gave ", text.size(),
                                            " bytes and status ", status,
                                            "; reinstall the package bible-kjv-text"));
  }
  return text;
}

/// "Ge1:1 In the beginning ..." -> "In the beginning ...": the reference is no English.
std::string without_references(const std::string& text) {
  std::string result;
  result.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t space = text.find(' ', begin);
    const size_t from = space < end ? space + 1 : begin;
    result.append(text, from, end - from).push_back('\n');
    begin = end + 1;
  }
  return result;
}

std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return absl::StrCat(cache, "/skein");
  const char* home = std::getenv("HOME");
  return absl::StrCat(home != nullptr ? home : "/tmp", "/.cache/skein");
}

}  // namespace

absl::StatusOr<std::string> kjv_path() {
  const std::string folder = cache_folder();
  const std::string path = folder + "/kjv.txt";
  std::error_code error;
  if (std::filesystem::file_size(path, error) >= kLeastBytes && !error) return path;
  SKEIN_ASSIGN_OR_RETURN(const std::string text, output_of_bible());
  std::filesystem::create_directories(folder, error);
  SKEIN_RETURN_IF_ERROR(write_durably(path, without_references(text)));
  return path;
}

}  // namespace skein::gpu
