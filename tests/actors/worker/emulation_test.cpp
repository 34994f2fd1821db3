#include "actors/worker/emulation.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace skein::actors {
namespace {

/// Write down what is done to them.
class SpeedDevice : public gpu::Device {
 public:
  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t) override { return gpu::Buffer(); }
  absl::Status run(gpu::Work) override { return absl::OkStatus(); }
  void set_speed(double speed) override { speeds.push_back(speed); }

  std::vector<double> speeds;

 private:
  gpu::DeviceInfo info_{"half", 1, 0.5, true};
};

class LinkPlane : public net::DataPlane, public net::TensorInbox {
 public:
  const std::string& address() const override { return address_; }
  net::TensorInbox& inbox() override { return *this; }
  void send(const std::string&, Rows) override {}
  void open(StreamSpec) override {}
  void close(uint64_t, uint32_t, net::schema::TensorKind) override {}
  void close_before(uint64_t) override {}
  void drop_link(const std::string& address, double seconds) override {
    dropped.emplace_back(address, seconds);
  }
  net::DataPlaneStatistics statistics() const override { return {}; }

  std::vector<std::pair<std::string, double>> dropped;

 private:
  std::string address_;
};

struct EmulationTest : testing::Test {
  bool tell(double speed, uint32_t drop_link_to, double seconds, bool has_device = true) {
    return emulate({speed, {drop_link_to}, seconds}, has_device ? &device : nullptr, plane,
                   {{{2}, "b:1"}});
  }

  SpeedDevice device;
  LinkPlane plane;
};

TEST_F(EmulationTest, SpeedIsRelativeToTheWorkersOwn) {
  EXPECT_TRUE(tell(0.25, 0, 0));
  EXPECT_TRUE(tell(1, 0, 0));
  EXPECT_EQ(device.speeds, (std::vector<double>{0.125, 0.5}));
  EXPECT_TRUE(plane.dropped.empty());
}

TEST_F(EmulationTest, ZeroLeavesTheSpeedAsItIs) {
  EXPECT_TRUE(tell(0, 2, 3));
  EXPECT_TRUE(device.speeds.empty());
  EXPECT_EQ(plane.dropped, (std::vector<std::pair<std::string, double>>{{"b:1", 3}}));
}

TEST_F(EmulationTest, DropsALinkBeforeThereIsADevice) {
  EXPECT_TRUE(tell(0.5, 2, 0, /*has_device=*/false));
  EXPECT_EQ(plane.dropped.size(), 1u);
}

TEST_F(EmulationTest, DoesNothingToALinkThatNobodyHas) {
  EXPECT_FALSE(tell(0.5, 3, 1));
  EXPECT_TRUE(device.speeds.empty());
  EXPECT_TRUE(plane.dropped.empty());
}

}  // namespace
}  // namespace skein::actors
