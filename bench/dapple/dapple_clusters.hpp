#pragma once

#include <string>
#include <vector>

#include "plans/profile/cluster.hpp"

namespace skein::bench {

/// A cluster with a one-letter name.
struct DappleCluster {
  std::string name;
  std::string text;
  plans::ClusterSpec cluster;
};

/// A, B and C of DAPPLE's evaluation (V100 of 16 GB), and three unlike ones:
///   A  2 hosts x 8, NVLink inside, 25 Gb/s between
///   B  16 hosts x 1, 25 Gb/s
///   C  16 hosts x 1, 10 Gb/s
///   D  3 hosts x 4, of speed 1, 1/2 and 1/4, NVLink inside, 25 Gb/s between
///   E  2 hosts x 8, devices of speed 1, 1/2 and 1/4 mixed, with 32, 16 and 16 GB, as A
///   F  16 hosts x 1, of speed 1 and 1/2 in turn, 10 Gb/s, two pairs joined by 2 Gb/s only
std::vector<DappleCluster> dapple_clusters();

}  // namespace skein::bench
