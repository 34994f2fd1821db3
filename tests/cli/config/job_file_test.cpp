#include "cli/config/job_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/config/job_keys.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

using plans::JobSpec;
using testing::HasSubstr;
using testing::StartsWith;

/// Every field is changed, and the job is valid.
JobSpec changed_job() {
  JobSpec job;
  job.name = "other # name";
  job.dump_folder = "/some/where";
  job.model_from = "/weights";
  job.model = {"llama", "byte-tiny", 300,   512,      3,          4,        2,   24,
               64,      false,       1e-6,  1.0 / 3,  "rms_norm", "swiglu", 96,  false,
               true,    "rotary",    500.5, "llama3", 2.5,        0.5,      8.5, 4096};
  job.data = {"tokens", "", {"a = b.bin", "c, \"d\".bin"}, {1, 3.5}, "v [1].bin", 0.25};
  job.training = {7, 33, 3, 12, 0.5, true};
  job.optimizer = {"sgd", 3e-4, 0.8, 0.99, 1e-7, 0.01, 0.7};
  job.lr_scheduler = {5, "polynomial", 1.5, 0.25, 0.2};
  job.parallelism = {plans::kAutoDegree, 2, {2, 0, 1}, {1, 3}, "ZBH1", 2, "some.plan"};
  job.parallelism.plans_of_others = false;
  job.device = {"sleep", 4, 0.75, {1, 0.5, 0.1}, 10.5, 21, 3, "H6", "speeds.csv", 0.25,
                "tf32",  2, 512};
  job.validation = {11, 2};
  job.checkpoint = {false, 13, 0, "run/before"};
  job.elastic = {0.25, 2.5, 2, 9, 4, false, 7.5};
  job.sync.average_moments = true;
  job.sync.reducer = "topk";
  job.sync.density = 0.25;
  job.sync.period = 4;
  job.sync.local_steps = 3;
  job.sync.group_size = 5;
  job.sync.wave = 6;
  job.sync.bound = 7;
  job.sync.groups = 3;
  job.sync.group_servers = false;
  job.sync.loss_rise_max = 0.125;
  job.sync.staleness_decay = 0.5;
  job.sync.round_steps = 8;
  job.sync.clip_by = "share";
  job.comm = {12.5, 17, 0.5, "gloo"};
  job.sharing = {-2, 7, false};
  job.metrics = {3};
  job.profiling = {false, 9};
  job.debug = {9223372036854775807U};  // TOML has no larger integer.
  return job;
}

/// An environment variable that goes with the object.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

class JobFile : public testing::Test {
 protected:
  absl::StatusOr<LoadedJob> load(const std::string& text, const Overrides& overrides = {}) {
    std::ofstream(path_) << text;
    return load_job(path_, overrides);
  }
  /// What is wrong with the text, without the path of the file: "job.toml:3: ...".
  std::string trouble(const std::string& text, const Overrides& overrides = {}) {
    const auto job = load(text, overrides);
    if (job.ok()) return "nothing";
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(job.status().message());
    return message.starts_with(folder_.path()) ? message.substr(folder_.path().size() + 1)
                                               : message;
  }

  tests::TemporaryFolder folder_;
  std::string path_ = folder_.file("job.toml");
};

TEST_F(JobFile, EveryFieldOfAJobReadsBack) {
  for (const JobSpec& job : {JobSpec{}, changed_job()}) {
    const auto again = parse_job(to_toml(job, nullptr));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, job) << to_toml(*again, nullptr);
  }
}

TEST_F(JobFile, StringsReadBackWhateverIsInThem) {
  for (const char* text :
       {"", " ", "a \"b\" c", "back\\slash", "tab\tline\n", "# = []", "\u00fc", "\x01"}) {
    JobSpec job;
    job.dump_folder = text;
    const auto again = parse_job(to_toml(job, nullptr));
    ASSERT_TRUE(again.ok()) << again.status() << " of " << text;
    EXPECT_EQ(again->dump_folder, text);
  }
}

TEST_F(JobFile, TheChangedJobChangesEveryKey) {
  const JobSpec job = changed_job();
  for (const JobKey& key : job_keys()) {
    if (key.full_name() == "model.name") continue;   // There is one model.
    if (key.full_name() == "data.path") continue;    // data.mixture stands for it.
    if (key.full_name() == "sync.policy") continue;  // Another one does not fit this layout,
    if (key.full_name() == "sync.claims_in_flight") continue;  // nor do several claims,
    if (key.full_name() == "sync.round_reducer") continue;     // and it has no rounds.
    if (key.section == "tokens") continue;                     // Nor does it train by tokens.
    EXPECT_NE(key.get(job), key.get(JobSpec{})) << key.full_name();
  }
}

TEST_F(JobFile, AJobOfPipelinesReadsBack) {
  const auto job = load(
      "[sync]\npolicy = \"sdpipe\"\nperiod = 3\nclaims_in_flight = 4\n"
      "round_reducer = \"adasum\"\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(
      job->spec.sync,
      (plans::SyncSpec{
          .policy = "sdpipe", .period = 3, .round_reducer = "adasum", .claims_in_flight = 4}));
  const auto again = parse_job(to_toml(job->spec, nullptr));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, job->spec);
}

TEST_F(JobFile, ACapOfBucketsIsNoNegativeNumber) {
  EXPECT_EQ(trouble("[comm]\nbackend = \"nccl\"\n"), "nothing");
  EXPECT_THAT(trouble("[comm]\nbackend = \"mpi\"\n"), HasSubstr("use auto, gloo or nccl"));
  EXPECT_EQ(trouble("[comm]\nbucket_cap_mb = 0\n"), "nothing");
  for (const char* cap : {"-1", "nan", "inf"}) {
    EXPECT_THAT(trouble(std::string("[comm]\nbucket_cap_mb = ") + cap + "\n"),
                HasSubstr("bucket_cap_mb"));
  }
}

TEST_F(JobFile, AnEmptyFileGivesTheDefaults) {
  const auto job = load("");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec, JobSpec{});
  EXPECT_TRUE(job->origins.empty());
}

TEST_F(JobFile, AMissingFileIsNamed) {
  const auto job = load_job(folder_.file("none.toml"), {});
  ASSERT_FALSE(job.ok());
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("none.toml"));
}

TEST_F(JobFile, FlagsGoOverTheEnvironmentAndThatOverTheFile) {
  const std::string text = "[training]\nsteps = 5\nseq_len = 6\nmax_norm = 7\n";
  const Environment first("SKEIN_TRAINING_SEQ_LEN", "60");
  const Environment second("SKEIN_TRAINING_MAX_NORM", "70");
  const auto job = load(text, {{"training.max_norm", "600"}, {"training.max_norm", "700"}});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->text, text);
  EXPECT_EQ(job->spec.training.steps, 5);
  EXPECT_EQ(job->spec.training.seq_len, 60);
  EXPECT_EQ(job->spec.training.max_norm, 700) << "the last flag wins";
  const std::map<std::string, std::string> origins = {
      {"training.steps", path_ + ":2"},
      {"training.seq_len", "SKEIN_TRAINING_SEQ_LEN"},
      {"training.max_norm", "--training.max_norm"}};
  EXPECT_EQ(job->origins, origins);
  const std::string resolved = to_toml(job->spec, &job->origins);
  EXPECT_THAT(resolved, HasSubstr("<SKEIN_TRAINING_SEQ_LEN>\n"));
  EXPECT_THAT(resolved, HasSubstr("<default>\n"));
}

TEST_F(JobFile, EveryKeyCanComeFromTheEnvironment) {
  const JobSpec changed = changed_job();
  std::vector<std::string> variables;
  for (const JobKey& key : job_keys()) {
    std::string name = "SKEIN_" + key.section + "_" + key.name;
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    setenv(name.c_str(), key.get(changed).c_str(), 1);
    variables.push_back(name);
  }
  const auto job = load("");
  const auto received = parse_job("");
  for (const std::string& name : variables) unsetenv(name.c_str());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec, changed);
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, JobSpec{}) << "a worker's environment changes nothing";
}

TEST_F(JobFile, AFlavorGivesWayToKeysWhereverItComesFrom) {
  const std::string text = "[model]\nn_layer = 5\n";
  const auto job = load(text, {{"model.flavor", "gpt2"}});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.model.layers, 5);
  EXPECT_EQ(job->spec.model.channels, 768);
  EXPECT_EQ(job->spec.model.vocab_size, 50257);
  EXPECT_EQ(job->origins.at("model.n_layer"), path_ + ":2");
  EXPECT_EQ(job->origins.at("model.n_embd"), "flavor");
  EXPECT_EQ(job->origins.at("model.flavor"), "--model.flavor");
  EXPECT_EQ(job->origins.count("model.positions"), 0);
  EXPECT_THAT(trouble("\n[model]\nflavor = \"gpt9\"\n"),
              StartsWith("job.toml:3: model.flavor = \"gpt9\" does not exist; there are "));
}

TEST_F(JobFile, AFamilyGivesWayToKeysAsWell) {
  const auto job = load("[model]\nmlp = \"gelu\"\n", {{"model.name", "llama"}});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.model.mlp, "gelu");
  EXPECT_EQ(job->spec.model.norm, "rms_norm");
  EXPECT_EQ(job->spec.model.position_embedding_type, "rotary");
  EXPECT_FALSE(job->spec.model.has_bias);
  EXPECT_EQ(job->origins.at("model.norm"), "model.name");
  EXPECT_EQ(job->origins.at("model.mlp"), path_ + ":2");
}

TEST_F(JobFile, APublishedFlavorSetsItsFamily) {
  const auto job = load("[model]\nn_layer = 5\n", {{"model.flavor", "llama-3.2-1b"}});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.model.name, "llama");
  EXPECT_EQ(job->spec.model.layers, 5);
  EXPECT_EQ(job->spec.model.kv_heads, 8);
  EXPECT_EQ(job->spec.model.rope_type, "llama3");
  EXPECT_EQ(job->origins.at("model.rope_type"), "flavor");
  EXPECT_THAT(trouble("[model]\nname = \"gpt2\"\nflavor = \"qwen2.5-0.5b\"\n"),
              StartsWith("job.toml:3: model.flavor: qwen2.5-0.5b is a qwen2, and model.name = "));
}

TEST_F(JobFile, OfTheModelInAFolderTheLastWordCounts) {
  std::ofstream(folder_.file("config.json"))
      << R"({"model_type": "gpt2", "vocab_size": 512, "n_positions": 64, "n_embd": 64,
             "n_layer": 4, "n_head": 4, "activation_function": "gelu_new",
             "layer_norm_epsilon": 1e-5})";
  const std::string text = "[training]\nseq_len = 8\n[model]\nvocab_size = 256\n";
  const std::pair<std::string, std::string> from = {"model.from", folder_.path()};
  EXPECT_THAT(trouble(text, {from}),
              StartsWith("job.toml:4: model.vocab_size = 256: it is 512 in "));
  const auto job = load(text, {from, {"model.vocab_size", "512"}});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.model.channels, 64);
  EXPECT_THAT(trouble("[model]\nn_layer = 4\n", {from, {"model.n_layer", "5"}}),
              StartsWith("--model.n_layer = 5: it is 4 in "));
}

TEST_F(JobFile, OfARunsFolderTheNewestCheckpointHasTheModel) {
  for (const int blocks : {2, 3}) {
    const std::string checkpoint = folder_.file("checkpoint/step-0000000" + std::to_string(blocks));
    std::filesystem::create_directories(checkpoint);
    std::ofstream(checkpoint + "/COMPLETE") << "{}";
    std::ofstream(checkpoint + "/config.json")
        << R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64,
               "n_head": 4, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
               "n_layer": )"
        << blocks << "}";
  }
  const Overrides from = {{"model.from", folder_.path()}};
  const auto job = load("[training]\nseq_len = 8\n", from);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.model.layers, 3);
  EXPECT_EQ(job->spec.model_from, folder_.path());
  EXPECT_THAT(trouble("[model]\nn_layer = 2\n[training]\nseq_len = 8\n", from),
              HasSubstr("it is 3 in " + folder_.file("checkpoint/step-00000003/config.json")));
  EXPECT_THAT(trouble("", {{"model.from", folder_.file("checkpoint/step-00000004")}}),
              HasSubstr("or a run's folder"));
}

/// What a folder's config.json leaves out is as it is anyway, and a job may say so.
TEST_F(JobFile, KeysMaySayTheSameOfAFoldersModelInOtherWords) {
  std::ofstream(folder_.file("config.json"))
      << R"({"model_type": "gpt2", "vocab_size": 512, "n_positions": 64, "n_embd": 64,
             "n_layer": 4, "n_head": 4, "activation_function": "gelu_new",
             "layer_norm_epsilon": 1e-5})";
  const Overrides from = {{"model.from", folder_.path()}};
  const std::string text =
      "[training]\nseq_len = 8\n[data]\ndataset = \"tokens\"\npath = \"a.bin\"\n[model]\n";
  const auto plain = load(text, from);
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const char* same : {"head_dim = 16", "head_dim = 0", "num_key_value_heads = 4",
                           "intermediate_size = 256", "qkv_bias = true"}) {
    const auto job = load(text + same + "\n", from);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->spec, plain->spec) << same;
  }
  const std::pair<const char*, const char*> others[] = {
      {"head_dim = 32", "it is 16 in"},
      {"num_key_value_heads = 2", "it is 4 in"},
      {"intermediate_size = 32", "it is 256"},
      {"n_embd = 9223372036854775807", "it is 64 in"},
      {"n_head = 0", "it is 4 in"},
      {"name = \"llama\"", "it is \"gpt2\" in"}};
  for (const auto& [other, means] : others) {
    EXPECT_THAT(trouble(text + other + "\n", from), HasSubstr(means)) << other;
  }
  EXPECT_THAT(trouble(text + "qkv_bias = false\n", from), HasSubstr("it is true in"))
      << "all products of the folder's model have biases";
  // The last word counts, and what it says in other words leaves nothing of those before it.
  EXPECT_EQ(load(text + "head_dim = 32\n", {from[0], {"model.head_dim", "16"}}).value().spec,
            plain->spec);
}

TEST_F(JobFile, KeysMaySayTheSameOfAFolderThatSaysAll) {
  std::ofstream(folder_.file("config.json"))
      << R"({"model_type": "skein", "vocab_size": 256, "n_positions": 64, "n_embd": 64,
             "n_layer": 4, "n_head": 4, "n_inner": 256, "activation_function": "gelu_new",
             "layer_norm_epsilon": 1e-5, "norm": "rms_norm", "mlp": "gelu", "bias": true,
             "position_embedding_type": "learned", "head_dim": 8})";
  const Overrides from = {{"model.from", folder_.path()}};
  const auto job =
      load("[model]\nname = \"llama\"\nintermediate_size = 0\n[training]\nseq_len = 8\n", from);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.model.intermediate_size, 256);
  EXPECT_EQ(job->spec.model.norm, "rms_norm");
  EXPECT_EQ(job->spec.model.mlp, "gelu");
  EXPECT_THAT(trouble("[model]\nhead_dim = 0\n[training]\nseq_len = 8\n", from),
              HasSubstr("head_dim = 0: it is 8 in"));
}

TEST_F(JobFile, HeadsAndScalingThatDoNotFitAreRefused) {
  const std::string llama = "[model]\nname = \"llama\"\n";
  EXPECT_EQ(trouble(llama + "n_head = 6\nnum_key_value_heads = 3\nhead_dim = 10\n"), "nothing");
  EXPECT_THAT(trouble(llama + "num_key_value_heads = 3\n"), HasSubstr("must divide model.n_head"));
  EXPECT_THAT(trouble(llama + "num_key_value_heads = -1\n"), HasSubstr("must divide"));
  EXPECT_THAT(trouble(llama + "head_dim = 5\n"),
              HasSubstr("head_dim = 5: must give heads of an even"));
  EXPECT_THAT(trouble(llama + "head_dim = 9223372036854775807\n"), HasSubstr("head_dim"));
  EXPECT_THAT(trouble(llama + "n_head = 3\n"), HasSubstr("or model.head_dim be given"));
  EXPECT_THAT(trouble(llama + "rope_type = \"yarn\"\n"), HasSubstr("must be one of \"default\""));
  EXPECT_THAT(trouble(llama + "rope_factor = 2.0\n"), HasSubstr("goes with model.rope_type"));
  EXPECT_THAT(trouble(llama + "rope_type = \"linear\"\nrope_low_freq_factor = 2.0\n"),
              HasSubstr("goes with model.rope_type = \"llama3\""));
  EXPECT_THAT(trouble(llama + "rope_type = \"llama3\"\nrope_low_freq_factor = 4.0\n"),
              HasSubstr("must be above model.rope_low_freq_factor"));
  EXPECT_THAT(trouble("[model]\nrope_type = \"linear\"\n"), HasSubstr("position_embedding_type"));
}

TEST_F(JobFile, WhatIsWrongInAFileHasItsLineAndASuggestion) {
  EXPECT_EQ(trouble("[training]\nsteps = 1\nseq_lenn = 3\n"),
            "job.toml:3: unknown key training.seq_lenn (did you mean training.seq_len?)");
  EXPECT_EQ(trouble("\n[trainin]\nsteps = 1\n"),
            "job.toml:2: unknown section [trainin] (did you mean training?)");
  EXPECT_EQ(trouble("\n\nsteps = 1\n").substr(0, 37), "job.toml:3: unknown section [steps]");
  EXPECT_EQ(trouble("[compare]\n").substr(0, 24), "job.toml:1: [compare] ma");
  EXPECT_EQ(trouble("training = 1\n"), "job.toml:1: training must be a section: write [training]");
  EXPECT_THAT(trouble("[training]\nsteps = \n"), StartsWith("job.toml:2: "));
}

TEST_F(JobFile, AValueOfAnotherTypeIsRefusedWithItsLine) {
  EXPECT_EQ(trouble("[training]\n\nsteps = 1.5\n"),
            "job.toml:3: training.steps: expected integer, got 1.5");
  for (const JobKey& key : job_keys()) {
    const bool is_list = key.type.starts_with("list");
    const bool is_number = key.type == "number";
    const std::string texts[] = {"\"7\"", "7", "7.5", "[7]", "true", "1979-05-27"};
    const bool fits[] = {key.type == "string",
                         key.type == "integer" || is_number,
                         is_number,
                         is_list,
                         key.type == "boolean",
                         false};
    for (size_t i = 0; i < std::size(texts); ++i) {
      if (fits[i] || (i < 2 && key.type == "integer or \"auto\"")) continue;
      EXPECT_THAT(trouble("[" + key.section + "]\n" + key.name + " = " + texts[i] + "\n"),
                  StartsWith("job.toml:2: " + key.full_name() + ": expected "))
          << texts[i];
    }
  }
}

TEST_F(JobFile, ListsOfAnotherKindAreRefused) {
  EXPECT_THAT(trouble("[parallelism]\nlayout = [1, 2.5]\n"),
              StartsWith("job.toml:2: parallelism.layout: expected a list of integers"));
  EXPECT_THAT(trouble("[device]\nspeeds = [0.5, true]\n"),
              StartsWith("job.toml:2: device.speeds: expected a list of numbers"));
  const auto job = load("[device]\nspeeds = [\n  1,\n  0.5,\n]\n[parallelism]\nlayout = []\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.device.speeds, (std::vector<double>{1, 0.5}));
}

TEST_F(JobFile, AutoIsTheWordForTheDegreeOnly) {
  const auto job = load("[parallelism]\npipeline_parallel_degree = \"auto\"\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.parallelism.pipeline_parallel_degree, plans::kAutoDegree);
  EXPECT_THAT(trouble("[parallelism]\npipeline_parallel_degree = \"all\"\n"),
              StartsWith("job.toml:2: parallelism.pipeline_parallel_degree: expected "));
}

TEST_F(JobFile, AStepHasNotAnyNumberOfMicroBatches) {
  EXPECT_EQ(trouble("", {{"training.global_batch_size", "1000000000000"},
                         {"training.micro_batch_size", "4"}}),
            "--training.global_batch_size = 1000000000000: must be at most 65536 times "
            "training.micro_batch_size = 4");
}

TEST_F(JobFile, APathGoesWithADatasetThatReadsIt) {
  EXPECT_THAT(trouble("", {{"data.dataset", "kjv"}, {"data.path", "/mine"}}),
              StartsWith("--data.path = /mine: goes with data.dataset = \"text\""));
  for (const char* ratio : {"0", "1.5", "-1"}) {
    EXPECT_THAT(trouble("", {{"lr_scheduler.decay_ratio", ratio}}), HasSubstr("in (0, 1]"));
  }
  EXPECT_THAT(trouble("", {{"lr_scheduler.decay_power", "0"}}), HasSubstr("above 0"));
  const Overrides mixed = {{"data.dataset", "tokens"}, {"data.mixture", "a.bin, b.bin"}};
  const auto with = [&mixed](const std::string& key, const std::string& value) {
    Overrides all = mixed;
    all.emplace_back(key, value);
    return all;
  };
  EXPECT_THAT(trouble("", with("data.path", "c.bin")),
              HasSubstr("data.mixture = [a.bin, b.bin]: sources stand for data.path"));
  EXPECT_THAT(
      trouble("", with("data.weights", "1")),
      HasSubstr("data.weights = [1]: must be one number for each of the 2 in data.mixture"));
  EXPECT_THAT(trouble("", with("data.weights", "1,0")), HasSubstr("must be above 0"));
  EXPECT_THAT(trouble("", {{"data.mixture", "a.bin"}}), HasSubstr("data.dataset"));
  EXPECT_THAT(trouble("", {{"data.mixture", "[\"a.bin\" b]"}}), HasSubstr("a list of strings"));
  EXPECT_THAT(trouble("", {{"data.dataset", "kjv"}, {"data.validation_path", "/mine"}}),
              StartsWith("--data.validation_path = /mine: goes with "));
}

TEST_F(JobFile, AValueOutOfRangeSaysWhereItIsFrom) {
  EXPECT_EQ(trouble("[training]\nsteps = 0\n"),
            "job.toml:2: training.steps = 0: must be at least 1");
  EXPECT_EQ(trouble("", {{"training.steps", "0"}}), "--training.steps = 0: must be at least 1");
  EXPECT_EQ(trouble("", {{"training.steps", "x"}}), "--training.steps: expected an integer, got x");
  const Environment variable("SKEIN_TRAINING_STEPS", "many");
  EXPECT_EQ(trouble("[training]\nsteps = 5\n"),
            "SKEIN_TRAINING_STEPS: expected an integer, got many");
}

TEST_F(JobFile, AVariableThatIsNearlyAKeyIsRefused) {
  const std::pair<const char*, const char*> typos[] = {
      {"SKEIN_TRAINING_STPES", "SKEIN_TRAINING_STEPS"},
      {"SKEIN_TRAINNIG_STEPS", "SKEIN_TRAINING_STEPS"},
      {"SKEIN_STEPS", "SKEIN_TRAINING_STEPS"},
      {"SKEIN_OPTIMIZER_LRR", "SKEIN_OPTIMIZER_LR"}};
  for (const auto& [wrong, meant] : typos) {
    const Environment variable(wrong, "5");
    EXPECT_EQ(trouble(""), std::string(wrong) + ": no key of the job has this name (did you mean " +
                               meant + "?); unset it, or see skein config keys");
    EXPECT_TRUE(parse_job("").ok()) << "a worker's environment changes nothing";
  }
  const Environment of_a_section("SKEIN_MODEL_SOMETHING_ELSE_ALTOGETHER", "5");
  EXPECT_THAT(trouble(""), StartsWith("SKEIN_MODEL_SOMETHING_ELSE_ALTOGETHER: no key"));
}

TEST_F(JobFile, VariablesOfOthersAreLeftAlone) {
  for (const char* name :
       {"SKEIN_JOB", "SKEIN_WORKERS", "SKEIN_KEYS", "SKEIN_IMAGE", "SKEIN_CUDA_PLUGIN",
        "SKEIN_SERVICE_HOST", "SKEIN_PORT_29400_TCP_ADDR", "SKEIN_COORDINATOR_SERVICE_PORT",
        "SKEIN_HOME", "SKEINS_TRAINING_STEPS"}) {
    const Environment variable(name, "5");
    EXPECT_EQ(trouble(""), "nothing") << name;
  }
}

TEST_F(JobFile, AWrongReducerGetsTheNearestOne) {
  EXPECT_EQ(trouble("[sync]\nreducer = \"adasun\"\n"),
            "job.toml:2: sync.reducer = \"adasun\" (did you mean adasum?): must be one of sum, "
            "mean, adasum, topk, hitopk, fp16, bf16, hisum, topka2a");
  EXPECT_EQ(trouble("[sync]\ndensity = 0\n"), "job.toml:2: sync.density = 0: must be in (0, 1]");
  const auto job = load("[sync]\nreducer = \"topk\"\ndensity = 0.001\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.sync, (plans::SyncSpec{.reducer = "topk", .density = 0.001}));
}

/// A run that has it in its configuration can be resumed; it never changed anything.
TEST_F(JobFile, AKeyNoLongerUsedIsIgnored) {
  const auto job = load("[debug]\ndeterministic = false\nseed = 7\n");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.debug, (plans::DebugSpec{.seed = 7}));
  EXPECT_THAT(to_toml(job->spec, nullptr), testing::Not(HasSubstr("deterministic")));
  const auto line = HasSubstr("job.toml:2: debug.deterministic is no longer used");
  EXPECT_THAT(job->ignored, testing::ElementsAre(line));
  std::vector<std::string> said;
  tell_ignored(*job, [&said](const std::string& each) { said.push_back(each); });
  EXPECT_THAT(said, testing::ElementsAre(line));
}

TEST_F(JobFile, AKeyNoLongerUsedIsIgnoredWhereverItIsFrom) {
  const Environment variable("SKEIN_DEBUG_DETERMINISTIC", "true");
  std::vector<std::string> arguments = {"--debug.deterministic",    "job.toml",
                                        "--debug.no-deterministic", "--debug.deterministic=false",
                                        "--debug.deterministic",    "true"};
  const auto overrides = take_overrides(arguments);
  ASSERT_TRUE(overrides.ok()) << overrides.status();
  EXPECT_THAT(arguments, testing::ElementsAre("job.toml"));
  const auto job = load_job_text("", "job.toml", {overrides->front()});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->ignored,
              testing::ElementsAre(StartsWith("SKEIN_DEBUG_DETERMINISTIC is no longer used"),
                                   StartsWith("--debug.deterministic is no longer used")));
}

TEST(TakeOverrides, TakesKeysInEveryFormAndLeavesTheRest) {
  std::vector<std::string> arguments = {"job.toml",
                                        "--training.steps",
                                        "7",
                                        "--quiet",
                                        "--training.seq-len=9",
                                        "--checkpoint.no-enable",
                                        "--training.recompute",
                                        "--elastic.watch_speeds",
                                        "false",
                                        "--out",
                                        "a.b",
                                        "--model.flavor="};
  const auto overrides = take_overrides(arguments);
  ASSERT_TRUE(overrides.ok()) << overrides.status();
  EXPECT_EQ(*overrides, (Overrides{{"training.steps", "7"},
                                   {"training.seq_len", "9"},
                                   {"checkpoint.enable", "false"},
                                   {"training.recompute", "true"},
                                   {"elastic.watch_speeds", "false"},
                                   {"model.flavor", ""}}));
  EXPECT_EQ(arguments, (std::vector<std::string>{"job.toml", "--quiet", "--out", "a.b"}));
}

TEST(TakeOverrides, SaysWhatIsUnknownOrMissing) {
  auto trouble = [](std::vector<std::string> arguments) {
    return std::string(take_overrides(arguments).status().message());
  };
  EXPECT_EQ(trouble({"--training.stepz", "7"}),
            "--training.stepz: unknown key (did you mean training.steps?)");
  EXPECT_EQ(trouble({"--training.steps"}), "--training.steps needs a value (integer)");
  EXPECT_EQ(trouble({"--training.steps", "--quiet"}), "--training.steps needs a value (integer)");
  EXPECT_THAT(trouble({"--training.no-steps"}), HasSubstr("unknown key"));
}

TEST(DescribeKeys, HasALineForEveryKey) {
  const std::string text = describe_keys();
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), job_keys().size());
  for (const JobKey& key : job_keys()) EXPECT_THAT(text, HasSubstr(key.full_name() + " "));
}

}  // namespace
}  // namespace skein::cli
