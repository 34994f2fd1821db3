#include "actors/replica/reports.hpp"

#include <string>

namespace skein::actors {

void Reports::ready(const plans::ReadyReport& report) const {
  send([&](auto body) {
    auto ready = body.initReady();
    ready.setReplica(report.replica.value);
    ready.setStep(report.step);
    ready.setSamples(report.samples);
    ready.setLossSum(report.loss_sum);
    ready.setLossTokens(report.loss_tokens);
    ready.setNeedsGroups(report.needs_groups);
    ready.setNormSquared(report.norm_squared);
    ready.setBusyUs(report.busy_us);
    ready.setStepUs(report.step_us);
    ready.setStashPeak(report.stash_peak);
    ready.setSnapshotUs(report.snapshot_us);
  });
}

void Reports::reduced(plans::ReplicaId replica, uint64_t step, double norm_squared) const {
  send([&](auto body) {
    auto reduced = body.initReduced();
    reduced.setReplica(replica.value);
    reduced.setStep(step);
    reduced.setNormSquared(norm_squared);
  });
}

void Reports::validated(plans::ReplicaId replica, uint64_t step, double loss_sum,
                        uint64_t loss_tokens) const {
  send([&](auto body) {
    auto validated = body.initValidated();
    validated.setReplica(replica.value);
    validated.setStep(step);
    validated.setLossSum(loss_sum);
    validated.setLossTokens(loss_tokens);
  });
}

void Reports::averaged(plans::ReplicaId replica, uint64_t number, bool ok) const {
  send([&](auto body) {
    auto averaged = body.initCombined();
    averaged.setReplica(replica.value);
    averaged.setNumber(number);
    averaged.setOk(ok);
  });
}

void Reports::shard_saved(const ShardWritten& written) const {
  const std::vector<gpu::SavedFile> files = written.files.value_or(std::vector<gpu::SavedFile>());
  send([&](auto body) {
    auto saved = body.initShardSaved();
    saved.setStage(static_cast<uint32_t>(written.stage));
    saved.setStep(written.steps_done);
    saved.setError(std::string(written.files.status().message()));
    auto list = saved.initFiles(static_cast<unsigned>(files.size()));
    for (unsigned i = 0; i < files.size(); ++i) {
      list[i].setName(files[i].name);
      list[i].setBytes(files[i].bytes);
      list[i].setCrc32c(files[i].crc32c);
      auto tensors = list[i].initTensors(static_cast<unsigned>(files[i].tensors.size()));
      for (unsigned t = 0; t < files[i].tensors.size(); ++t) tensors.set(t, files[i].tensors[t]);
    }
  });
}

void Reports::timings(plans::ReplicaId replica, uint64_t step, uint64_t staleness,
                      const std::vector<SliceReport>& slices) const {
  send([&](auto body) {
    auto timings = body.initTimings();
    timings.setReplica(replica.value);
    timings.setStep(step);
    timings.setStaleness(staleness);
    auto list = timings.initSlices(static_cast<unsigned>(slices.size()));
    for (unsigned i = 0; i < slices.size(); ++i) {
      list[i].setName(slices[i].name);
      list[i].setTrack(slices[i].track);
      list[i].setStartUs(slices[i].start_us);
      list[i].setDurationUs(slices[i].duration_us);
      list[i].setMicrobatch(slices[i].microbatch);
    }
  });
}

}  // namespace skein::actors
