#include <cistern/error.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/simulated/device_identity.h"
#include "runtime/simulated/visible_devices.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using cistern::testing::GiB;
using cistern::testing::MiB;
using simulated::find_visible_devices;

TEST(SimulatedOptions, ReadsEverySetting) {
  const auto options = SimulatedOptions::parse(
      "devices=2,capacity=40GiB,backing=none,event_lag=64,compute_capability=8.6,race_frames=128");
  EXPECT_EQ(options.devices, 2);
  EXPECT_EQ(options.capacity_bytes, 40 * GiB);
  EXPECT_EQ(options.backing, Backing::none);
  EXPECT_EQ(options.event_lag_ticks, 64u);
  EXPECT_EQ(options.race_frames, 128);
  EXPECT_EQ(options.compute_capability_major, 8);
  EXPECT_EQ(options.compute_capability_minor, 6);
}

TEST(SimulatedOptions, WhatIsNotSetKeepsItsDefault) {
  const auto options = SimulatedOptions::parse("");
  EXPECT_EQ(options.devices, 1);
  EXPECT_EQ(options.capacity_bytes, 80 * GiB);
  EXPECT_EQ(options.backing, Backing::memory);
  EXPECT_EQ(options.event_lag_ticks, 0u);
  EXPECT_EQ(options.race_frames, 48);
  EXPECT_FALSE(options.visible_devices.has_value());
}

TEST(SimulatedOptions, SizesHaveUnitsOrNone) {
  const auto capacity = [](const std::string& text) {
    return SimulatedOptions::parse("capacity=" + text).capacity_bytes;
  };
  EXPECT_EQ(capacity("1048576"), MiB);
  EXPECT_EQ(capacity("512B"), 512u);
  EXPECT_EQ(capacity("3KiB"), 3072u);
  EXPECT_EQ(capacity("512MiB"), 512 * MiB);
  EXPECT_EQ(capacity("2TiB"), 2048 * GiB);
}

TEST(SimulatedOptions, RefusesWhatItCannotReadAndSaysWhatItExpected) {
  const auto text_of = [](std::string_view text) -> std::string {
    try {
      (void)SimulatedOptions::parse(text);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(text_of("devices=0"), "simulated device: devices=0: expected a number from 1");
  EXPECT_EQ(text_of("devices=two"), "simulated device: devices=two: expected a number from 1");
  EXPECT_EQ(text_of("capacity=80GB"),
            "simulated device: capacity=80GB: expected a size such as 80GiB, 512MiB or 1048576");
  for (const char* frames : {"-1", "129", "all"}) {
    EXPECT_EQ(text_of(std::string("race_frames=") + frames),
              std::string("simulated device: race_frames=") + frames + ": expected a number of frames from 0 to 128");
  }
  EXPECT_EQ(text_of("backing=disk"), "simulated device: backing=disk: expected memory or none");
  EXPECT_EQ(text_of("event_lag=-1"), "simulated device: event_lag=-1: expected a number of ticks");
  EXPECT_EQ(text_of("compute_capability=9"), "simulated device: compute_capability=9: expected a version such as 9.0");
  EXPECT_EQ(
      text_of("speed=9"),
      "simulated device: unknown setting 'speed'; expected devices, capacity, backing, drive, event_lag, "
      "peer_bandwidth, host_bandwidth, memory_bandwidth, races, race_frames, shared, compute_capability or peers");
  EXPECT_EQ(text_of("peer_bandwidth=fast"),
            "simulated device: peer_bandwidth=fast: expected a size such as 80GiB, 512MiB or 1048576");
  EXPECT_EQ(text_of("devices=1,devices=2"), "simulated device: devices is set twice");
  for (const char* text : {"devices", "devices=1,", ",devices=1", "capacity=99999999TiB", "capacity=GiB", "capacity=",
                           "capacity=-1", "devices= 1", "compute_capability=-1.0", "compute_capability=9.x"}) {
    EXPECT_NE(text_of(text), "accepted") << text;
  }
}

TEST(VisibleDevices, OrderAndSubset) {
  EXPECT_EQ(find_visible_devices("0,1,2", 3), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(find_visible_devices("2,0", 3), (std::vector<int>{2, 0}));
  EXPECT_EQ(find_visible_devices(" 1 , 0 ", 3), (std::vector<int>{1, 0}));
}

TEST(VisibleDevices, AnEmptyTextHidesAll) {
  EXPECT_EQ(find_visible_devices("", 3), std::vector<int>{});
  EXPECT_EQ(find_visible_devices("NoDevFiles", 3), std::vector<int>{});
}

TEST(VisibleDevices, TheFirstInvalidEntryEndsTheList) {
  EXPECT_EQ(find_visible_devices("1,3,0", 3), std::vector<int>{1});
  EXPECT_EQ(find_visible_devices("1,-1,0", 3), std::vector<int>{1});
  EXPECT_EQ(find_visible_devices("1,,0", 3), std::vector<int>{1});
  EXPECT_EQ(find_visible_devices("99999999999999999999", 3), std::vector<int>{});
}

TEST(VisibleDevices, ADeviceNamedTwiceHidesAll) { EXPECT_EQ(find_visible_devices("0,1,0", 3), std::vector<int>{}); }

TEST(VisibleDevices, UuidsCountIfTheirFirstDigitsNameOneDevice) {
  const std::string second = simulated::device_uuid_text(1);
  EXPECT_EQ(second.size(), 40u);
  EXPECT_EQ(find_visible_devices(second + ",0", 3), (std::vector<int>{1, 0}));
  EXPECT_EQ(find_visible_devices("GPU-", 1), std::vector<int>{0});
  EXPECT_EQ(find_visible_devices("GPU-6369", 3), std::vector<int>{});
  EXPECT_EQ(find_visible_devices("GPU-ffff", 3), std::vector<int>{});
}

TEST(SimulatedOptions, ADriverRefusesValuesThatHaveNoName) {
  const auto refused = [](auto SimulatedOptions::*setting, auto value) {
    SimulatedOptions options;
    options.*setting = value;
    EXPECT_THROW(SimulatedDriver{options}, InvalidArgument);
  };
  refused(&SimulatedOptions::drive, static_cast<Drive>(2));
  refused(&SimulatedOptions::backing, static_cast<Backing>(-1));
  refused(&SimulatedOptions::races, static_cast<RaceMode>(77));
}

TEST(SimulatedOptions, ADeviceIsVisibleOnce) {
  SimulatedOptions options;
  options.devices = 2;
  options.visible_devices = {1, 1};
  EXPECT_THROW(SimulatedDriver{options}, InvalidArgument);
}

}  // namespace
}  // namespace cistern
