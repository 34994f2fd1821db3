#include "net/codec/membership.hpp"

#include <array>

#include "net/codec/body_codec.hpp"

namespace skein::net {
namespace {

/// Breaking a link for longer than a year is for ever, which is 0.
constexpr double kDropSecondsMax = 366.0 * 86'400;

std::string fit_reason(const std::string& reason) { return fit_text(reason, kReasonBytesMax); }

std::string read_reason(Bounds& bounds, capnp::Text::Reader reason) {
  return bounds.text("reason", reason, kReasonBytesMax);
}

}  // namespace

void read(schema::Join::Reader from, Bounds& bounds, plans::JoinRequest& to) {
  to.host_name = bounds.name("hostName", from.getHostName());
  to.process_id = from.getProcessId();  // Any 32 bits: for people.
  to.data_address = bounds.name("dataAddress", from.getDataAddress());
  to.device = bounds.name("device", from.getDevice());
  to.speed = bounds.finite("speed", from.getSpeed(), kSpeedMin, kSpeedMax);
  to.previous = bounds.worker_or_none("previousWorker", from.getPreviousWorker());
  to.generation = bounds.count("generation", from.getGeneration(), kGenerationsMax);
  to.run = bounds.name("run", from.getRun());
  to.config_digest = from.getConfigDigest();
}

void write(const plans::JoinRequest& from, schema::Join::Builder to) {
  to.setHostName(fit_text(from.host_name, kNameBytesMax));
  to.setProcessId(from.process_id);
  to.setDataAddress(from.data_address);
  to.setDevice(from.device);
  to.setSpeed(from.speed);
  to.setPreviousWorker(from.previous.value);
  to.setGeneration(from.generation);
  to.setRun(from.run);
  to.setConfigDigest(from.config_digest);
}

void read(schema::Joined::Reader from, Bounds& bounds, Joined& to) {
  to.worker = bounds.worker("worker", from.getWorker());
  to.job = bounds.name("job", from.getJob());
  to.job_config = bounds.lines("jobConfig", from.getJobConfig(), kJobConfigBytesMax);
  to.run_folder = bounds.text("runFolder", from.getRunFolder(), kPathBytesMax);
  to.run = bounds.name("run", from.getRun());
  to.config_digest = from.getConfigDigest();
  to.data_address = bounds.name("dataAddress", from.getDataAddress());
}

void write(const Joined& from, schema::Joined::Builder to) {
  to.setWorker(from.worker.value);
  to.setJob(from.job);
  to.setJobConfig(from.job_config);
  to.setRunFolder(from.run_folder);
  to.setRun(from.run);
  to.setConfigDigest(from.config_digest);
  to.setDataAddress(from.data_address);
}

void read(schema::Refused::Reader from, Bounds& bounds, Refused& to) {
  to.reason = read_reason(bounds, from.getReason());
  to.run = bounds.name("run", from.getRun());
}

void write(const Refused& from, schema::Refused::Builder to) {
  to.setReason(fit_reason(from.reason));
  to.setRun(from.run);
}

void read(schema::Heartbeat::Reader from, Bounds& bounds, Heartbeat& to) {
  to.activity.steps_done = bounds.count("stepsDone", from.getStepsDone(), kStepsMax);
  to.activity.action = bounds.name("action", from.getAction());
  to.activity.action_us = bounds.count("actionUs", from.getActionUs(), kTimeUsMax);
  to.activity.works = from.getWorks();
  to.activity.awaits_device = from.getAwaitsDevice() && !to.activity.works;
  to.activity.device = bounds.name("device", from.getDevice());
  to.sent_us = bounds.count("sentUs", from.getSentUs(), kTimeUsMax);
  const auto dropped = from.getDropped();
  std::array<uint64_t, plans::kDropReasons>& counts = to.activity.dropped.counts();
  for (unsigned i = 0; i < bounds.size("dropped", dropped.size(), counts.size()); ++i) {
    const auto in = bounds.element("dropped", i);
    counts[i] = bounds.count("", dropped[i], kEventsMax);
  }
}

void write(const Heartbeat& from, schema::Heartbeat::Builder to) {
  to.setStepsDone(from.activity.steps_done);
  to.setAction(fit_text(from.activity.action, kNameBytesMax));
  to.setActionUs(from.activity.action_us);
  to.setWorks(from.activity.works);
  to.setAwaitsDevice(from.activity.awaits_device);
  to.setDevice(fit_text(from.activity.device, kNameBytesMax));
  to.setSentUs(from.sent_us);
  const auto& counts = from.activity.dropped.counts();
  auto dropped = to.initDropped(static_cast<unsigned>(counts.size()));
  for (unsigned i = 0; i < dropped.size(); ++i) dropped.set(i, counts[i]);
}

void read(schema::HeartbeatAck::Reader from, Bounds& bounds, HeartbeatAck& to) {
  to.sent_us = bounds.count("sentUs", from.getSentUs(), kTimeUsMax);
  to.coordinator_us = bounds.count("coordinatorUs", from.getCoordinatorUs(), kTimeUsMax);
}

void write(const HeartbeatAck& from, schema::HeartbeatAck::Builder to) {
  to.setSentUs(from.sent_us);
  to.setCoordinatorUs(from.coordinator_us);
}

void read(schema::Failed::Reader from, Bounds& bounds, Failed& to) {
  to.reason = read_reason(bounds, from.getReason());
  to.bad_input = from.getBadInput();
  to.stays = from.getStays();
}

void write(const Failed& from, schema::Failed::Builder to) {
  to.setReason(fit_reason(from.reason));
  to.setBadInput(from.bad_input);
  to.setStays(from.stays);
}

void read(schema::PeerFailure::Reader from, Bounds& bounds, PeerFailure& to) {
  to.reason = read_reason(bounds, from.getReason());
  to.peer = bounds.worker_or_none("peer", from.getPeer());
  to.is_unreachable = from.getIsUnreachable();
}

void write(const PeerFailure& from, schema::PeerFailure::Builder to) {
  to.setReason(fit_reason(from.reason));
  to.setPeer(from.peer.value);
  to.setIsUnreachable(from.is_unreachable);
}

void read(schema::CheckpointUnreadable::Reader from, Bounds& bounds, CheckpointUnreadable& to) {
  to.reason = read_reason(bounds, from.getReason());
}

void write(const CheckpointUnreadable& from, schema::CheckpointUnreadable::Builder to) {
  to.setReason(fit_reason(from.reason));
}

void read(schema::Leave::Reader from, Bounds& bounds, Leave& to) {
  to.reason = read_reason(bounds, from.getReason());
}

void write(const Leave& from, schema::Leave::Builder to) { to.setReason(fit_reason(from.reason)); }

void read(schema::DrainRequest::Reader from, Bounds& bounds, DrainRequest& to) {
  to.worker = bounds.worker("worker", from.getWorker());
}

void write(const DrainRequest& from, schema::DrainRequest::Builder to) {
  to.setWorker(from.worker.value);
}

void read(schema::Stop::Reader from, Bounds& bounds, Stop& to) {
  to.reason = read_reason(bounds, from.getReason());
  to.keeps_state = from.getKeepsState();
}

void write(const Stop& from, schema::Stop::Builder to) {
  to.setReason(fit_reason(from.reason));
  to.setKeepsState(from.keeps_state);
}

void read(schema::Emulate::Reader from, Bounds& bounds, Emulate& to) {
  to.speed = bounds.finite("speed", from.getSpeed(), 0, 1);
  to.drop_link_to = bounds.worker_or_none("dropLinkTo", from.getDropLinkTo());
  to.drop_seconds = bounds.finite("dropSeconds", from.getDropSeconds(), 0, kDropSecondsMax);
}

void write(const Emulate& from, schema::Emulate::Builder to) {
  to.setSpeed(from.speed);
  to.setDropLinkTo(from.drop_link_to.value);
  to.setDropSeconds(from.drop_seconds);
}

}  // namespace skein::net
