@0xd1f0c0a7b5e94a11;
# Every control message between processes of Skein. The only definition of the protocol.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("skein::net::schema");

const protocolVersion :UInt32 = 11;
# A process refuses a peer of another version with `Refused`.

const magic :UInt64 = 0x534b45494e303031;
# "SKEIN001": tells a peer of ours from anything else that connects.

enum Role {
  worker @0;  # Joins the job.
  viewer @1;  # Asks for the status and leaves.
  peer @2;    # A worker's data connection to another worker.
}

struct Hello {
  # First message on every connection, from the side that connects. A repeat closes the connection.
  magic @0 :UInt64;
  protocolVersion @1 :UInt32;
  role @2 :Role;
  # The next ones are those of a peer: every tensor of the connection is of this run and generation,
  # by this life of the coordinator, and from this worker. Others leave them out: a worker says in
  # `Join` which run it serves.
  run @3 :Text;          # The run's id; empty: it has joined none yet.
  generation @4 :UInt64; # 0: what is sent before any plan.
  sender @5 :UInt32;     # Worker id; 0: it has none yet, or, with a run, it is the coordinator.
  # The coordinator's life that made the plan: one that was restarted may give the generation of a plan
  # that it cannot know to another one.
  term @6 :UInt64;
  secret @7 :UInt64;     # That of `Assign`; 0: the sender knows none.
}

struct Envelope {
  # Every message after `Hello`.
  generation @0 :UInt64;  # Plan in force at the sender; 0: none yet.
  term @1 :UInt64;        # Coordinator's life; 0: sender does not know one yet.
  sender @2 :UInt32;      # Worker id; 0: the coordinator, or a worker that has none yet.
  receiver @3 :UInt32;    # Worker id; 0: the coordinator, or several workers, who get the same bytes.
  traceHigh @4 :UInt64;   # W3C trace id of the step or of the event that caused the message.
  traceLow @5 :UInt64;
  body :union {
    join @6 :Join;
    joined @7 :Joined;
    refused @8 :Refused;
    assign @9 :Assign;
    prepared @10 :Prepared;
    rendezvous @11 :Rendezvous;
    start @12 :Start;
    ready @13 :Ready;
    obsoleteGroupStart @14 :Void;
    reduced @15 :Reduced;
    commit @16 :Commit;
    validated @17 :Validated;
    shardSaved @18 :ShardSaved;
    heartbeat @19 :Heartbeat;
    heartbeatAck @20 :HeartbeatAck;
    timings @21 :Timings;
    failed @22 :Failed;
    stop @23 :Stop;
    statusRequest @24 :Void;
    status @25 :Status;
    profileRequest @26 :ProfileRequest;
    profiled @27 :Profiled;
    quiesce @28 :Quiesce;
    quiesced @29 :Quiesced;
    peerFailure @30 :PeerFailure;
    leave @31 :Leave;
    drainRequest @32 :DrainRequest;
    snapshotKept @33 :SnapshotKept;
    emulate @34 :Emulate;
    claim @35 :Claim;
    pipelineCommit @36 :PipelineCommit;
    average @37 :Average;
    averaged @38 :Averaged;
    abort @39 :Abort;
    checkpointUnreadable @40 :CheckpointUnreadable;
    earlySignal @41 :EarlySignal;
    shardSent @42 :ShardSent;
    layersWanted @43 :LayersWanted;
    tokenOrder @44 :TokenOrder;
    tokenReport @45 :TokenReport;
    textRequest @46 :TextRequest;
    textRoom @47 :TextRoom;
    textLayers @48 :TextLayers;
    textReady @49 :Void;
    textStep @50 :TextStep;
  }
}

struct Join {
  # Worker -> coordinator, after `Hello`. A repeat on one connection is dropped.
  hostName @0 :Text;
  processId @1 :UInt32;
  dataAddress @2 :Text;   # "host:port" where other workers connect for tensors.
  device @3 :Text;        # What is asked for, as "cuda x1"; `Heartbeat.device` says what it is.
  speed @4 :Float64;      # Emulated speed, 1.0 = the device itself.
  previousWorker @5 :UInt32;  # The number that we had on a connection that was lost; 0: none.
  generation @6 :UInt64;  # Largest one that we have seen; the next one is larger.
  run @7 :Text;           # Id of the run that we serve; empty: none yet, any will do.
  configDigest @8 :UInt64;  # The digest of the job's configuration as we have it; 0: we have none.
}

struct Joined {
  # Coordinator -> worker: the join is accepted.
  worker @0 :UInt32;      # From 1; 0 is never valid.
  job @1 :Text;           # Job id.
  jobConfig @2 :Text;     # The resolved job file (TOML).
  runFolder @3 :Text;     # Absolute path of the run folder on the coordinator's machine.
  run @4 :Text;           # The run's id. A worker that serves another one has nothing to do here.
  configDigest @5 :UInt64;  # The configuration's, which may be another one than on the connection before.
  dataAddress @6 :Text;   # "host:port" where the coordinator takes tensors; with an unspecified host, as
                          # 0.0.0.0: that by which the worker reaches the coordinator. Empty: nowhere.
}

struct Refused {
  # Coordinator -> peer, before it closes the connection: one line, what and what to do.
  reason @0 :Text;
  run @1 :Text;           # If the peer serves another run: the one that is here; else empty.
}

struct Peer {
  worker @0 :UInt32;
  dataAddress @1 :Text;
}

struct Quiesce {
  # Coordinator -> every member: the plan is about to change, to that of the envelope's generation.
  # Abort the groups of older ones, let the work that your device has end, and answer `Quiesced`. A
  # repeat of a generation is answered no second time.
  committedSteps @0 :UInt64;  # Whoever waits for the commit of the last of them applies it first:
                              # the coordinator may have died between its journal and its word.
  gradientNorm @1 :Float64;   # That step's.
  committedGeneration @2 :UInt64;  # In which that step was committed: others wait for one in vain.
}

struct InventoryItem {
  step @0 :UInt64;        # The state is that after so many committed steps.
  layerBegin @1 :UInt32;
  layerEnd @2 :UInt32;
  generation @3 :UInt64;  # In which the last of the steps was committed; 0: none was.
}

struct Quiesced {
  # Worker -> coordinator: nothing of an older generation runs here any more.
  inventory @0 :List(InventoryItem);  # State that we can give: live or kept for another worker.
}

struct LayerMove {
  layer @0 :UInt32;
  from @1 :UInt32;        # Worker that holds the layer's state after `Assign.firstStep` steps.
  to @2 :UInt32;          # Worker of the plan that needs it.
}

struct ReplicaPart {
  replica @0 :UInt32;
  worker @1 :UInt32;
  rowBegin @2 :UInt32;    # Its rows of every micro-batch.
  rowCount @3 :UInt32;
  rank @4 :UInt32;        # Whose list of the plan's actions its worker follows.
}

struct StagePart {
  # As `plans::StagePart`: of the replicas, only those that the receiver has to know.
  stage @0 :UInt32;
  layerBegin @1 :UInt32;
  layerEnd @2 :UInt32;
  first @3 :UInt32;       # The stage's replicas have the numbers from here on, ...
  replicaCount @4 :UInt32;  # ... and are so many.
  replicas @5 :List(ReplicaPart);
  # As `plans::StageEnds`, for each micro-batch; empty and 0: devices form no groups of their own.
  forwardEnds @6 :List(UInt64);
  backwardEnds @7 :List(UInt64);
  lastEnd @8 :UInt64;
}

struct GroupPartner {
  rank @0 :UInt32;
  worker @1 :UInt32;
}

struct GroupPart {
  # As `plans::GroupPart`: a group of which the receiver hosts a member.
  group @0 :UInt32;
  tied @1 :Bool;
  member @2 :UInt32;      # The receiver's replica.
  rank @3 :UInt32;
  rankCount @4 :UInt32;
  partners @5 :List(GroupPartner);  # With whom the member moves bytes.
}

struct DeviceRank {
  worker @0 :UInt32;
  rank @1 :UInt32;
}

struct DeviceGroupPart {
  # As `plans::DeviceGroupPart`: a group that devices may form.
  group @0 :UInt32;
  use @1 :UInt8;          # As `plans::DeviceUse`: 0 sums, 1 another reducer, 2 activations.
  front @2 :UInt32;       # Activations: the stage in front.
  isMember @3 :Bool;      # The receiver is; else it only decides how the group is formed.
  rank @4 :UInt32;        # The receiver's on the devices, as numbers of workers ascend.
  rankCount @5 :UInt32;
  neighbours @6 :List(DeviceRank);  # Activations: with whom the receiver exchanges rows.
  members @7 :List(UInt32);  # By replica; empty where the receiver need not know them.
}

struct PlanPart {
  # As `plans::PlanPart`: what one worker has to know of a plan.
  generation @0 :UInt64;
  mode @1 :Text;
  microbatchCount @2 :UInt32;
  microbatchRows @3 :UInt32;
  recompute @4 :Bool;
  stageCount @5 :UInt32;
  workerMax @6 :UInt32;
  stages @7 :List(StagePart);
  groups @8 :List(GroupPart);
  actions @9 :Text;       # As `plans::to_csv`, without the end of the line.
  obsoleteWhole @10 :Text;
  deviceLeader @11 :UInt32;  # Decides how devices form groups of their own; 0: they form none.
  deviceGroups @12 :List(DeviceGroupPart);
}

struct SnapshotPeer {
  stage @0 :UInt32;
  worker @1 :UInt32;      # Keeps the stage's snapshots.
}

struct Assign {
  # Coordinator -> worker: prepare the replicas that the plan places on you, and send the layers
  # that move from you. A repeat of a generation is dropped.
  plan @0 :PlanPart;
  peers @1 :List(Peer);   # To whom the receiver sends tensors.
  firstStep @2 :UInt64;   # Step to start with, counted from 0.
  loadPath @3 :Text;      # Checkpoint directory to load; empty: initial weights of the seed.
  dataBytes @4 :UInt64;   # Size of the training data; another one is an error.
  dataDigest @5 :UInt64;  # Digest of the training data.
  fromCheckpoint @6 :Bool;     # All state is read from `loadPath`; else it comes by `moves`, and
                               # what is not listed there is held already.
  moves @7 :List(LayerMove);   # From the receiver and to it.
  snapshotPeers @8 :List(SnapshotPeer);  # Of the stages that it hosts, or keeps for others.
  stateGeneration @9 :UInt64;  # In which the step before `firstStep` was committed: state of that
                               # step and another generation is of a past that was rolled back.
  configDigest @10 :UInt64;    # The digest of the configuration by which the plan is carried out.
  secret @11 :UInt64;          # Shows on data connections that a worker takes part in this plan; 0:
                               # the receiver exchanges no tensors.
}

struct Prepared {
  # Worker -> coordinator: all replicas of the generation are allocated and loaded.
  turnHead @0 :UInt64;    # The largest position of a pass on the device that the worker shares with other
                          # jobs; 0: it shares none.
  hasTurns @1 :Bool;      # This job takes turns there.
}

struct ProfileRequest {
  # Coordinator -> worker: measure the job's layers on your device, and your links to the peers, who
  # measure theirs to you. A repeat while it is measured is dropped.
  rows @0 :List(UInt32);  # Numbers of rows of a micro-batch, ascending; none: only be ready to
                          # answer the others' probes.
  peers @1 :List(Peer);   # A sample of the workers.
}

struct LayerTimes {
  forwardUs @0 :Float64;
  backwardInputUs @1 :Float64;
  backwardWeightUs @2 :Float64;
}

struct LayerProfile {
  name @0 :Text;
  times @1 :List(LayerTimes);       # One per number of rows.
  activationRowBytes @2 :UInt64;
  stashRowBytes @3 :UInt64;
  parameterBytes @4 :UInt64;
}

struct Profile {
  # As `plans::Profile`.
  device @0 :Text;
  rows @1 :List(UInt32);
  layers @2 :List(LayerProfile);
  stateFactor @3 :Float64;
  gradientFactor @4 :Float64;
  updateUsPerByte @5 :Float64;
  tiedBytes @6 :UInt64;
  activationFactor @7 :Float64;  # Bytes kept of an activation per byte that travels; 0 means 1.
}

struct LinkMeasured {
  peer @0 :UInt32;
  bytesPerSecond @1 :Float64;
  latencyUs @2 :Float64;
}

struct Profiled {
  # Worker -> coordinator: what was measured. A repeat is dropped.
  profile @0 :Profile;
  links @1 :List(LinkMeasured);
  memoryBytes @2 :UInt64;           # The machine's or the device's; 0: not known.
  isDeviceMemory @3 :Bool;          # The device is the one that the profile names.
  memoryBytesMax @4 :UInt64;        # That the worker may take of it; 0: all.
  roundingBytes @5 :UInt64;         # What its blocks of memory are rounded up by, at most.
}

struct Rendezvous {
  # Worker -> coordinator -> those workers of the generation that wait for it: an entry of the rendezvous
  # store by which collective groups find each other. A repeat changes nothing.
  key @0 :Text;
  value @1 :Data;
  receivers @2 :List(UInt32);  # Who waits for it; empty: all others. Empty on the way to them.
}

struct Start {
  # Coordinator -> worker: every worker is prepared; run. First do what is left of the step before
  # `Assign.firstStep`, which is committed and applied.
  validate @0 :Bool;
  checkpoint @1 :Bool;
  last @2 :Bool;          # No step follows.
  snapshot @3 :Bool;      # Copy the state that you start with to its snapshot peer.
  turn @4 :UInt64;        # As in `Commit`.
}

struct Claim {
  # Coordinator -> workers of a pipeline replica that waits for samples: train on these.
  step @0 :UInt64;        # The pipeline replica's own, counted from 0 in each generation.
  firstSample @1 :UInt64;
  sampleCount @2 :UInt64;
  profile @3 :Bool;       # Report the timings of the step.
  turn @4 :UInt64;        # As in `Commit`.
}

struct PipelineCommit {
  # Coordinator -> workers of a pipeline replica: all of its replicas are ready; apply your own update. A
  # repeat is dropped.
  step @0 :UInt64;            # The pipeline replica's own.
  gradientNorm @1 :Float64;   # The pipeline replica's, over all stages.
  nextSample @2 :UInt64;      # Train on these next, once `Average` has been carried out.
  nextCount @3 :UInt64;       # 0: none; wait for `Claim`, or for a `Average` of all pipeline replicas.
  profile @4 :Bool;           # Report the timings of the next step.
  turn @5 :UInt64;            # As in `Commit`, of the next step.
}

struct AverageMember {
  replica @0 :UInt32;
  weight @1 :Float64;
}

struct Average {
  # Coordinator -> members of a group of pipeline replicas: take the weighted sum of the members' weights. Or,
  # to all replicas of the stage: the members push their updates to the stage's parameter server and
  # take its weights. A repeat is dropped.
  replica @0 :UInt32;     # The receiver's.
  number @1 :UInt64;      # The group's; ascending for each replica.
  members @2 :List(AverageMember);  # Ascending; of one only, there is nothing to do.
  nonblocking @3 :Bool;       # Not what the replica waits for: it goes on computing meanwhile.
  global @4 :Bool;        # All pipeline replicas take part, with their moments: the end of a round.
  stepsDone @5 :UInt64;   # If global: the steps of the job that are then done.
  server @6 :Bool;        # By the stage's parameter server.
  groupServer @9 :Bool;   # The members push to a server of their own, and that to the stage's.
  staleness @8 :UInt64;   # Between the oldest and the newest of what is averaged.
  closing @7 :Bool;       # The last ones of a round: for members that wait for samples.
}

struct Averaged {
  # Worker -> coordinator: the replica is through with a group of more than one member.
  replica @0 :UInt32;
  number @1 :UInt64;
  ok @2 :Bool;            # False: it was aborted, and the replica goes on with what it had.
}

struct Abort {
  # Coordinator -> member: the group lacks a member; go on with what you have.
  replica @0 :UInt32;
  number @1 :UInt64;
}

struct Ready {
  # Worker -> coordinator: a replica has done its last backward of a step.
  replica @0 :UInt32;
  step @1 :UInt64;
  obsoleteSamples @2 :UInt32;
  lossSum @3 :Float64;        # Sum of token losses, last stage; else 0.
  lossTokens @4 :UInt64;      # Number of token losses, last stage; else 0.
  needsGroups @5 :Bool;       # False: all its groups are groups of one, `normSquared` is final.
  normSquared @6 :Float64;    # Sum of squares of the reduced gradient, if not needsGroups.
  busyUs @7 :UInt64;          # Time the device worked in this step.
  stepUs @8 :UInt64;          # Time from the step's start to this message.
  stashPeak @9 :UInt32;       # Largest number of stashes held at once in this step.
  snapshotUs @10 :UInt64;     # Device time of the last snapshot's copy; 0: none was taken.
  weightDelay @11 :UInt32;    # Updates between a forward and its backward, the most of this step.
  deviceWaitUs @12 :UInt64;   # Time in which other jobs had the device that work of this one waited for.
  turnHead @13 :UInt64;       # As in `Prepared`.
  hasTurns @14 :Bool;         # As in `Prepared`.
}

struct TokenOrder {
  # Coordinator -> worker, in steps that are trained by tokens. A repeat is dropped.
  kind @0 :UInt32;           # 0: the token is yours. 1: the output that you have made of it is wanted.
                             # 2: all tokens of the replica's stage are done; add up its gradients.
  replica @1 :UInt32;        # The receiver's.
  step @2 :UInt64;
  token @3 :UInt32;          # Its place among those of the stage; of a reduction: 0.
  others @4 :List(UInt32);   # Replicas: who holds its inputs, in their order; or whom the output goes to.
}

struct TokenReport {
  # Worker -> coordinator: what has become of a token. A repeat is dropped.
  replica @0 :UInt32;
  step @1 :UInt64;
  token @2 :UInt32;
  event @3 :UInt32;          # 0: the device has begun the step, and the worker asks for tokens; the replica is
                             # any of its own. 1: the output is there. 2: the backward has ended, too.
}

struct TextRequest {
  # Coordinator of a text -> worker, when all have joined: say what room you have for layers of the model
  # of the job. A repeat is answered again.
  folder @0 :Text;       # A checkpoint, or a folder in Hugging Face's form: the same path everywhere.
  digest @1 :UInt64;     # The folder's; another one is an error.
  positions @2 :UInt64;  # The longest sequence has so many, at least 1.
  added @3 :UInt64;      # The most of them that are computed at once, at least 1.
}

struct TextRoom {
  # Worker -> coordinator: what layers would take. A repeat is dropped.
  freeBytes @0 :UInt64;  # 0: not known.
  isHostMemory @1 :Bool; # The machine's, shared with the other workers there.
  fixedBytes @2 :UInt64; # Taken beside the layers.
  layerBytes @3 :List(UInt64);  # By each layer of the model.
  sharedBytes @4 :UInt64; # So much less by all layers together; at most the sum of `layerBytes`.
}

struct TextLayers {
  # Coordinator -> worker: load these layers, and answer `textReady`. A repeat is dropped. Activations
  # travel on data connections, a tensor for each position: `step` is that of `TextStep`, `microbatch`
  # the position's number in it, and the receiver is a worker or, of logits, 0.
  layerBegin @0 :UInt32;
  layerEnd @1 :UInt32;
  previous @2 :UInt32;   # Worker whose activations go into them; 0: `TextStep.tokens` do.
  next @3 :UInt32;       # Worker that gets theirs; 0: the coordinator gets the last position's logits.
  nextAddress @4 :Text;  # Where it takes tensors; empty: `Joined.dataAddress`.
  secret @5 :UInt64;     # Shown on the data connections of the text.
}

struct TextStep {
  # Coordinator -> workers with layers: add positions to the sequence. A repeat, or an older one, is
  # dropped.
  number @0 :UInt64;     # Ascending, from 1.
  begin @1 :UInt64;      # Positions before these; 0: another sequence begins.
  count @2 :UInt32;      # At least 1.
  tokens @3 :List(UInt32);  # As many, for the worker with layer 0; else none.
}

struct EarlySignal {
  # Worker -> coordinator, with several claims in flight: the first gradients of a claim are final at a
  # stage, which may be given a group; Ready follows with the last ones. A repeat is dropped.
  replica @0 :UInt32;
  step @1 :UInt64;
}

struct Reduced {
  # Worker -> coordinator: a replica has finished the collectives of all its groups.
  replica @0 :UInt32;
  step @1 :UInt64;
  normSquared @2 :Float64;
}

struct Commit {
  # Coordinator -> worker, after it is journaled: apply the update of the step. A repeat is dropped.
  step @0 :UInt64;
  gradientNorm @1 :Float64;   # Global, over all stages.
  validate @2 :Bool;          # Run the validation pass next.
  checkpoint @3 :Bool;        # Save the state after this update.
  last @4 :Bool;              # No further step of this generation follows.
  profile @5 :Bool;           # Report the timings of the next step.
  snapshot @6 :Bool;          # Copy the state after this update to its snapshot peer.
  snapshotFloor @7 :UInt64;   # Snapshots of fewer steps are not needed any more.
  turn @8 :UInt64;            # The position of the next pass on devices that jobs share; 0: none is named.
}

struct Validated {
  # Worker -> coordinator: a last-stage replica has finished the validation pass after `step`.
  replica @0 :UInt32;
  step @1 :UInt64;
  lossSum @2 :Float64;
  lossTokens @3 :UInt64;
}

struct SavedFile {
  name @0 :Text;      # Relative to the checkpoint's folder.
  bytes @1 :UInt64;
  crc32c @2 :UInt32;
  tensors @3 :List(Text);
}

struct ShardSaved {
  # Worker -> coordinator: the leader of a stage has written and synced its files, or could not.
  stage @0 :UInt32;
  step @1 :UInt64;    # Steps done in the state that is saved.
  files @2 :List(SavedFile);
  error @3 :Text;     # Why there are none, in one line; empty if they are there.
}

struct ShardSent {
  # Worker -> coordinator: the leader of a stage does not see the run's folder, and sends the state of the
  # stage's layers to the coordinator's data address, to be saved there. A repeat is dropped.
  stage @0 :UInt32;
  step @1 :UInt64;    # Steps done in the state that is to be saved.
}

struct Heartbeat {
  # Worker -> coordinator every elastic.heartbeat_interval_seconds. A repeat changes nothing.
  stepsDone @0 :UInt64;   # Committed steps applied.
  sentUs @1 :UInt64;      # Worker's steady clock.
  action @2 :Text;        # What the device works on ("2B5"), or what it waits for; for people.
  actionUs @3 :UInt64;    # How long it has done so, in microseconds.
  works @4 :Bool;         # The device works; false: it waits.
  device @5 :Text;        # As `DeviceInfo::name`; empty: there is none yet.
  dropped @6 :List(UInt64);  # Events that changed nothing, since the worker started; by reason.
  awaitsDevice @7 :Bool;  # It has work for the device, which is with another job. Not with `works`.
}

struct HeartbeatAck {
  # Coordinator -> worker, at once: gives the worker the offset of its clock by half a round trip.
  sentUs @0 :UInt64;      # From the heartbeat.
  coordinatorUs @1 :UInt64;
}

struct Slice {
  name @0 :Text;          # "0F3", "SEND_F", "update"
  track @1 :UInt8;        # 0 compute, 1 send, 2 receive, 3 gradient sync, 4 control, 5 checkpoint.
  startUs @2 :UInt64;     # Coordinator's clock.
  durationUs @3 :UInt64;
  microbatch @4 :Int32;   # -1: none.
}

struct Timings {
  # Worker -> coordinator after a profiled step. A repeat is dropped.
  replica @0 :UInt32;
  step @1 :UInt64;
  slices @2 :List(Slice);
  staleness @3 :UInt64;   # How stale the weights were that the step was computed with, as the policy counts it.
  weightDelay @4 :UInt32; # Updates between a forward and its backward, the most of this step.
}

struct Failed {
  # Worker -> coordinator: the worker cannot go on. A repeat changes nothing.
  reason @0 :Text;        # One line: what, where, what to do.
  badInput @1 :Bool;      # True for bad data or checkpoints: exit code 3.
  stays @2 :Bool;         # It hands over what it holds, and waits for `Stop` or a plan that it has memory for;
                          # else it ends.
}

struct PeerFailure {
  # Worker -> coordinator: a neighbour or a group does not answer; we wait for what you decide.
  reason @0 :Text;        # One line.
  peer @1 :UInt32;        # The neighbour; 0: not known.
  isUnreachable @2 :Bool; # It was tried for about a lease, in vain; else something broke.
}

struct CheckpointUnreadable {
  # Worker -> coordinator: we cannot read the checkpoint that the plan starts with, or it is damaged;
  # we wait for what you decide. A repeat in one generation changes nothing.
  reason @0 :Text;        # One line, with the file and the tensor.
}

struct Leave {
  # Worker -> coordinator: move our state away, we must go (SIGTERM, a spot notice). `Stop` follows
  # when that is done. A repeat changes nothing.
  reason @0 :Text;
}

struct DrainRequest {
  # Viewer -> coordinator: let this worker leave as if it had asked to.
  worker @0 :UInt32;
}

struct LayersWanted {
  # Worker -> coordinator: the checkpoint that the plan starts with is not seen here. Send the state of the
  # layers of our replicas to our data address, in the plan's generation. A repeat is dropped.
}

struct SnapshotKept {
  # Worker -> coordinator: we keep a snapshot of the stage's state, our own or another's.
  stage @0 :UInt32;
  step @1 :UInt64;        # The state is that after so many committed steps.
}

struct Emulate {
  # Coordinator -> worker, in experiments: be slower, or lose a link, from now on.
  speed @0 :Float64;      # New speed in (0, 1], relative to the device's own; 0: as it is.
  dropLinkTo @1 :UInt32;  # Break the data connections to this worker; 0: none.
  dropSeconds @2 :Float64;  # So long, in seconds; 0: for ever.
}

struct Stop {
  # Coordinator -> worker: leave; the run is over.
  reason @0 :Text;
  keepsState @1 :Bool;  # The run has failed: write what you hold, as if there was no coordinator.
}

struct WorkerStatus {
  worker @0 :UInt32;
  hostName @1 :Text;
  processId @2 :UInt32;
  device @3 :Text;
  stepsDone @4 :UInt64;
  heartbeatAgeMs @5 :UInt64;
  replicas @6 :List(Text); # "stage 0 layers 0..3 rows 0..8"
}

struct Status {
  # Coordinator -> viewer.
  job @0 :Text;
  state @1 :Text;          # "waiting for workers", "preparing", "training", "stopping"
  stepsDone @2 :UInt64;
  stepsTotal @3 :UInt64;
  loss @4 :Float64;
  tokensPerSecond @5 :Float64;
  generation @6 :UInt64;
  term @7 :UInt64;
  workers @8 :List(WorkerStatus);
  runFolder @9 :Text;
}
