#pragma once

#include <cstdint>

namespace skein::bench {

/// One rank: does what comes on stdin, a command a line, with one line of answer each on stdout.
/// `stop GROUP` is for another command that waits, and has no answer of its own.
///
///   (at the start)                      "ready nccl 2.28.9", or "none WHY"
///   id                                  "ok ID", in hexadecimal
///   form NEW RANK COUNT ID              "ok"
///   split GROUP COLOR NEW               "ok"
///   shrink GROUP healthy|lost NEW LEFT ...    "ok"
///   revoke GROUP, close GROUP, drop GROUP     "ok"
///   reduce GROUP STEP FIRST COUNT       "ok DIGEST" of the sum of the members' gradients
///   die GROUP STEP FIRST COUNT          begins the same, and kills itself
///   apply                               "ok DIGEST" of the weights, to which the last sum is added
///   count                               "ok RSS_KB THREADS DESCRIPTORS GPU_MB"; -1: not known
///   quit
/// What fails answers "error WHY". Returns the exit code.
int run_rank(int64_t floats);

}  // namespace skein::bench
