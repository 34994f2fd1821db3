#include "net/codec/local_updates.hpp"

#include "net/codec/body_codec.hpp"

namespace skein::net {

void read(schema::Claim::Reader from, Bounds& bounds, Claim& to) {
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.samples.first = bounds.count("firstSample", from.getFirstSample(), kSamplesMax);
  to.samples.count = bounds.count("sampleCount", from.getSampleCount(), kSamplesMax);
  to.profile = from.getProfile();
  to.turn = bounds.count("turn", from.getTurn(), plans::kTurnPositionMax);
}

void write(const Claim& from, schema::Claim::Builder to) {
  to.setStep(from.step);
  to.setFirstSample(from.samples.first);
  to.setSampleCount(from.samples.count);
  to.setProfile(from.profile);
  to.setTurn(from.turn);
}

void read(schema::PipelineCommit::Reader from, Bounds& bounds, plans::UpdateOrder& to) {
  to.step = bounds.count("step", from.getStep(), kStepsMax);
  to.gradient_norm = bounds.norm("gradientNorm", from.getGradientNorm());
  plans::SampleClaim next;
  next.first = bounds.count("nextSample", from.getNextSample(), kSamplesMax);
  next.count = bounds.count("nextCount", from.getNextCount(), kSamplesMax);
  if (next.count > 0) to.next = next;
  to.profile = from.getProfile();
  to.turn = bounds.count("turn", from.getTurn(), plans::kTurnPositionMax);
}

void write(const plans::UpdateOrder& from, schema::PipelineCommit::Builder to) {
  to.setStep(from.step);
  to.setGradientNorm(from.gradient_norm);
  if (from.next) {
    to.setNextSample(from.next->first);
    to.setNextCount(from.next->count);
  }
  to.setProfile(from.profile);
  to.setTurn(from.turn);
}

void read(schema::Average::Reader from, Bounds& bounds, Average& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.number = bounds.count("number", from.getNumber(), kStepsMax);
  const auto members = from.getMembers();
  const unsigned count = bounds.size("members", members.size(), kMembersMax);
  to.members.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("members", i);
    plans::GroupMember member;
    member.replica = bounds.replica("replica", members[i].getReplica());
    member.weight = bounds.finite("weight", members[i].getWeight(), -kWeightMax, kWeightMax);
    to.members.push_back(member);
  }
  to.is_nonblocking = from.getNonblocking();
  to.is_global = from.getGlobal();
  to.has_server = from.getServer();
  to.has_group_server = from.getGroupServer();
  to.is_closing = from.getClosing();
  to.steps_done = bounds.count("stepsDone", from.getStepsDone(), kStepsMax);
  to.staleness = bounds.count("staleness", from.getStaleness(), kStepsMax);
}

void write(const Average& from, schema::Average::Builder to) {
  to.setReplica(from.replica.value);
  to.setNumber(from.number);
  auto members = to.initMembers(static_cast<unsigned>(from.members.size()));
  for (unsigned i = 0; i < members.size(); ++i) {
    members[i].setReplica(from.members[i].replica.value);
    members[i].setWeight(from.members[i].weight);
  }
  to.setNonblocking(from.is_nonblocking);
  to.setGlobal(from.is_global);
  to.setServer(from.has_server);
  to.setGroupServer(from.has_group_server);
  to.setClosing(from.is_closing);
  to.setStepsDone(from.steps_done);
  to.setStaleness(from.staleness);
}

void read(schema::Averaged::Reader from, Bounds& bounds, Averaged& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.number = bounds.count("number", from.getNumber(), kStepsMax);
  to.ok = from.getOk();
}

void write(const Averaged& from, schema::Averaged::Builder to) {
  to.setReplica(from.replica.value);
  to.setNumber(from.number);
  to.setOk(from.ok);
}

void read(schema::Abort::Reader from, Bounds& bounds, AbortGroup& to) {
  to.replica = bounds.replica("replica", from.getReplica());
  to.number = bounds.count("number", from.getNumber(), kStepsMax);
}

void write(const AbortGroup& from, schema::Abort::Builder to) {
  to.setReplica(from.replica.value);
  to.setNumber(from.number);
}

}  // namespace skein::net
