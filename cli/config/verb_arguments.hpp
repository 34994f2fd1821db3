#pragma once

namespace CLI {
class App;
}

namespace skein::cli {

struct CompareOptions;
struct EvalOptions;
struct GenerateOptions;
struct ProfileOptions;
struct WorkerArguments;

// The words of these verbs. The options are filled in when the verb is parsed and must outlive
// that.
CLI::App* add_compare_verb(CLI::App& app, CompareOptions& options);
CLI::App* add_eval_verb(CLI::App& app, EvalOptions& options);
CLI::App* add_generate_verb(CLI::App& app, GenerateOptions& options);
CLI::App* add_profile_verb(CLI::App& app, ProfileOptions& options);
CLI::App* add_worker_verb(CLI::App& app, WorkerArguments& arguments);

}  // namespace skein::cli
