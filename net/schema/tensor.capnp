@0xb7a0c35f0a6e4d92;
# What precedes the bytes of a tensor on a data connection between two workers, or the coordinator.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("skein::net::schema");

enum TensorKind {
  activation @0;   # Output of a stage, to the stage behind it.
  gradient @1;     # Gradient of that output, back to the stage before.
  validation @2;   # Output of a stage in the validation pass.
  # To measure links, generation 0; `receiver` is a worker and `microbatch` the worker that asks or
  # answers; `step` numbers the question.
  probe @3;        # One float: to be answered at once.
  probeBulk @4;    # 4 MiB: to be answered when it has arrived.
  probeReply @5;   # One float: the answer.
  # State of one layer after `step` steps; `receiver` is the layer, a row is the whole layer.
  state @6;        # Goes to a worker of a new plan, in its generation; from another worker, or, out of a
                   # checkpoint that is not seen there, from the coordinator.
  snapshot @7;     # Goes to the worker that keeps the stage's snapshots.
  shard @12;       # Goes to the coordinator, as its sender does not see the run's folder.
  # Of an embedding that is tied to the head, between the two ends of a pipeline replica whose stages
  # average apart from each other; a row is the whole matrix.
  tiedGradient @15;  # Of the head's use, to the first stage: of step `step`.
  tiedWeights @16;   # To the last stage, for step `step`.
  tiedState @17;     # Likewise, with both moments: three matrices, after `step` steps of the job.
  # Weights that the members of a group average, in chunks of equally many floats, of which the last
  # one is padded; `step` is the number of the group, `microbatch` is 2^20 * m + chunk, and a row is
  # the whole chunk. Sent once; a chunk of a group that is over is dropped.
  part @8;         # What member m puts in, to the member that owns the chunk.
  average @9;      # The weighted sum of all parts, from the chunk's owner m to every other member.
  dots @18;        # Dot products of the parts of member m's chunks (`net::AdasumChunks`), before their
                   # average, to every other member that owns chunks; of chunk 0, a row is all of them.
  # Likewise, of a parameter server that is sharded over the workers of a stage; m is the sender's
  # shard.
  push @10;        # What a member's weights have changed by, to the shard that has the chunk;
                   # of a group with a server of its own, all members', by the member that owns it.
  pull @11;        # The chunk's new weights, to whoever has pushed it.
  # Likewise, of the server of a group, which is sharded over the members.
  groupPush @13;   # What a member's weights have changed by, to the member that owns the chunk.
  groupPull @14;   # The chunk's new weights, from the owner to every other member.
}

struct TensorHeader {
  # Worker -> worker, worker <-> coordinator. `payloadBytes` bytes follow, not part of any Cap'n Proto message, so that both
  # sides move them between the socket and the tensor itself. A repeat is dropped by the receiver.
  generation @0 :UInt64;
  sender @1 :UInt32;        # Replica; of a shard or a snapshot, the stage; of text, the worker.
  receiver @2 :UInt32;      # Replica; of text, the worker.
  kind @3 :TensorKind;
  step @4 :UInt64;
  microbatch @5 :UInt32;    # Another number, as the kind says.
  rowBegin @6 :UInt32;      # In rows of the whole micro-batch.
  rowCount @7 :UInt32;
  payloadBytes @8 :UInt64;  # rowCount * T * C * 4, or of bfloat16 * 2.
  isBfloat16 @9 :Bool;      # The upper halves of float32 numbers whose lower halves are zero.
}
