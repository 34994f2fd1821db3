#include "net/codec/status.hpp"

#include "net/codec/body_codec.hpp"

namespace skein::net {
namespace {

WorkerStatus read_worker(schema::WorkerStatus::Reader from, Bounds& bounds) {
  WorkerStatus to;
  to.worker = bounds.worker("worker", from.getWorker());
  to.host_name = bounds.name("hostName", from.getHostName());
  to.process_id = from.getProcessId();
  to.device = bounds.name("device", from.getDevice());
  to.steps_done = bounds.count("stepsDone", from.getStepsDone(), kStepsMax);
  to.heartbeat_age_ms = bounds.count("heartbeatAgeMs", from.getHeartbeatAgeMs(), kTimeUsMax);
  const auto replicas = from.getReplicas();
  const unsigned count = bounds.size("replicas", replicas.size(), kHostedMax);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("replicas", i);
    to.replicas.push_back(bounds.name("", replicas[i]));
  }
  return to;
}

void write_worker(const WorkerStatus& from, schema::WorkerStatus::Builder to) {
  to.setWorker(from.worker.value);
  to.setHostName(from.host_name);
  to.setProcessId(from.process_id);
  to.setDevice(from.device);
  to.setStepsDone(from.steps_done);
  to.setHeartbeatAgeMs(from.heartbeat_age_ms);
  auto replicas = to.initReplicas(static_cast<unsigned>(from.replicas.size()));
  for (unsigned i = 0; i < replicas.size(); ++i) replicas.set(i, from.replicas[i]);
}

}  // namespace

void read(schema::Status::Reader from, Bounds& bounds, Status& to) {
  to.job = bounds.name("job", from.getJob());
  to.state = bounds.name("state", from.getState());
  to.steps_done = bounds.count("stepsDone", from.getStepsDone(), kStepsMax);
  to.steps_total = bounds.count("stepsTotal", from.getStepsTotal(), kStepsMax);
  to.loss = from.getLoss();  // Not finite if the training has diverged.
  to.tokens_per_second =
      bounds.finite("tokensPerSecond", from.getTokensPerSecond(), 0, kTokensPerSecondMax);
  to.generation = bounds.count("generation", from.getGeneration(), kGenerationsMax);
  to.term = bounds.count("term", from.getTerm(), kTermsMax);
  const auto workers = from.getWorkers();
  const unsigned count = bounds.size("workers", workers.size(), kPeersMax);
  to.workers.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("workers", i);
    to.workers.push_back(read_worker(workers[i], bounds));
  }
  to.run_folder = bounds.text("runFolder", from.getRunFolder(), kPathBytesMax);
}

void write(const Status& from, schema::Status::Builder to) {
  to.setJob(from.job);
  to.setState(from.state);
  to.setStepsDone(from.steps_done);
  to.setStepsTotal(from.steps_total);
  to.setLoss(from.loss);
  to.setTokensPerSecond(from.tokens_per_second);
  to.setGeneration(from.generation);
  to.setTerm(from.term);
  auto workers = to.initWorkers(static_cast<unsigned>(from.workers.size()));
  for (unsigned i = 0; i < workers.size(); ++i) write_worker(from.workers[i], workers[i]);
  to.setRunFolder(from.run_folder);
}

}  // namespace skein::net
