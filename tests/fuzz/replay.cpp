// Runs the fuzz targets without libFuzzer: first on every file of the corpus, then on mutations of these files. The seed determines the
// mutations. This program builds with any compiler and runs as a test. If an input breaks a contract, the program writes that input to a
// file.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::fuzz {
namespace {

using Target = void (*)(std::string_view);

const std::map<std::string, Target>& targets() {
  static const std::map<std::string, Target> all = {{"annotations", fuzz_annotations},
                                                    {"bucket", fuzz_bucket},
                                                    {"config", fuzz_config},
                                                    {"features", fuzz_features},
                                                    {"image", fuzz_image},
                                                    {"index", fuzz_index},
                                                    {"listing", fuzz_listing},
                                                    {"model_file", fuzz_model_file},
                                                    {"npy", fuzz_npy},
                                                    {"parquet", fuzz_parquet},
                                                    {"paths", fuzz_paths},
                                                    {"pytorch", fuzz_pytorch},
                                                    {"safetensors", fuzz_safetensors},
                                                    {"tar", fuzz_tar},
                                                    {"tokenizer", fuzz_tokenizer},
                                                    {"tokenizer_json", fuzz_tokenizer_json},
                                                    {"vocabulary", fuzz_vocabulary},
#ifdef TESSERA_WITH_SERVING
                                                    {"request", fuzz_request},
#endif
                                                    {"yaml", fuzz_yaml}};
  return all;
}

// These are global, so that the signal handler can write the current input to the file `crash_path`.
std::string current;
std::string crash_path;

void save_current(int signal) {
  const int file = ::open(crash_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const auto print = [](const char* text) { [[maybe_unused]] const auto done = ::write(2, text, std::strlen(text)); };
  if (file >= 0 && ::write(file, current.data(), current.size()) == static_cast<ssize_t>(current.size())) {
    print(signal == SIGPROF ? "an input took longer than 20 s: " : "the input: ");
    print(crash_path.c_str());
    print("\n");
  }
  ::_exit(1);
}

void run_one(Target target, std::string bytes) {
  constexpr itimerval limit{{0, 0}, {20, 0}};  // limits CPU time, not elapsed time, because other programs may slow this program down
  constexpr itimerval none{};
  current = std::move(bytes);
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  target(current);
  ::setitimer(ITIMER_PROF, &none, nullptr);
}

std::vector<std::string> corpus(const std::string& kind) {
  std::vector<std::string> paths, out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SOURCE_DIR "/tests/fuzz/corpus/" + kind, none))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) out.push_back(io::read_file(path));
  return out;
}

int run(int argc, char** argv) {
  std::string kind;
  std::vector<std::string> files;
  std::uint64_t inputs = 1000, seed = 0;
  std::size_t longest = 1 << 16;
  CLI::App app("Runs a fuzz target over its corpus and over mutations of it.");
  app.add_option("kind", kind, "the target")->required();
  app.add_option("files", files, "run only these inputs, without mutations");
  app.add_option("--inputs", inputs, "the number of mutations");
  app.add_option("--seed", seed, "the seed of the mutations");
  app.add_option("--longest", longest, "the maximum size of a mutation, in bytes");
  CLI11_PARSE(app, argc, argv);
  const auto target = targets().find(kind);
  if (target == targets().end()) user_error("no fuzz target ", kind);

  constexpr rlim_t memory = rlim_t{4} << 30;
  const rlimit limit{memory, memory};
  ::setrlimit(RLIMIT_DATA, &limit);
  crash_path = "fuzz-crash-" + kind;
  static std::array<char, 1 << 16> stack_of_handler;  // the normal stack may have overflowed
  const stack_t stack{stack_of_handler.data(), 0, stack_of_handler.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = save_current;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF}) ::sigaction(signal, &action, nullptr);
  if (!files.empty()) {
    for (const std::string& path : files) run_one(target->second, io::read_file(path));
    return 0;
  }
  target->second({});  // runs the one-time setup, which must not count towards an input's time
  const std::vector<std::string> known = corpus(kind);
  for (const std::string& bytes : known) run_one(target->second, bytes);
  const std::string dictionary = TESSERA_SOURCE_DIR "/tests/fuzz/dictionaries/" + kind + ".dict";
  const Mutator mutator(
      known, std::filesystem::exists(dictionary) ? read_dictionary(dictionary) : std::vector<std::string>(), longest);
  for (std::uint64_t i = 0; i < inputs; ++i) run_one(target->second, mutator.input(seed, i));
  std::cout << kind << ": " << known.size() << " inputs and " << inputs << " mutations: ok\n";
  return 0;
}

}  // namespace
}  // namespace tessera::fuzz

int main(int argc, char** argv) {
  return tessera::run_program("fuzz_tests", [&] { return tessera::fuzz::run(argc, argv); });
}
