#include <csignal>
#include <functional>
#include <optional>
#include <set>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/index/brute_force.h"
#include "tests/index/temporary_index.h"

// A change of an index reaches the file system only through system calls. Killing a child before its first system call, its second,
// and so on therefore covers every state that a kill can leave on disk.
namespace tessera::index {
namespace {

class Killed : public IndexTest {
 protected:
  /// Runs `change` in a child process that is killed before its system call number `call`. Returns whether it was killed, or nothing if
  /// this machine does not allow tracing processes.
  static std::optional<bool> run_until(int call, const std::function<void()>& change) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
      ::raise(SIGSTOP);
      try {
        change();
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) return std::nullopt;
    for (int stop = 0;; ++stop) {  // the child stops at the entry and at the exit of each call
      if (stop == 2 * call + 1) ::kill(child, SIGKILL);
      ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
      ::waitpid(child, &status, 0);
      if (WIFSIGNALED(status)) return true;
      if (WIFEXITED(status)) {
        EXPECT_EQ(WEXITSTATUS(status), 0);
        return false;
      }
    }
  }

  /// Returns text that lists an index's documents, their impacts, and the hits of a search; "none" if there is no index.
  static std::string contents(const std::string& folder) {
    if (!std::filesystem::exists(folder + "/manifest.json")) return "none";
    const Index index(folder, 1);
    const SparseVectors stored = index.stored_vectors();
    std::string text;
    for (std::int64_t r = 0; r < stored.rows(); ++r) {
      text += stored.ids[r];
      for (std::size_t i = 0; i < stored.tokens_of(r).size(); ++i)
        text += concat(" ", stored.tokens_of(r)[i], ":", stored.weights_of(r)[i]);
      text += "\n";
    }
    const std::vector<std::int32_t> tokens = {0, 1, 2, 3};
    const std::vector<float> weights = {1, 2, 3, 4};
    for (const Hit& hit : index.search(quantize_query(tokens, weights, index.quantization()), 1000).best)
      text += concat(index.id(hit.document), "=", hit.product, "\n");
    return text;
  }

  /// Runs `change` once for each of its system calls and kills it at that call. Each time, expects the index to be in its state before the
  /// change or in its state after it. Repeating the change must succeed whatever files the killed process left.
  void expect_before_or_after(const std::function<void(const std::string&)>& prepare,
                              const std::function<void(const std::string&)>& change) {
    prepare(path("start"));
    const std::string before = contents(path("start"));
    std::filesystem::copy(path("start"), path("end"), std::filesystem::copy_options::recursive);
    change(path("end"));
    const std::string after = contents(path("end"));
    ASSERT_NE(before, after);
    std::set<std::string> states;
    int call = 0;
    for (bool killed = true; killed; ++call) {
      const std::string folder = path("try");
      std::filesystem::remove_all(folder);
      std::filesystem::copy(path("start"), folder, std::filesystem::copy_options::recursive);
      const std::optional<bool> result = run_until(call, [&] { change(folder); });
      if (!result) GTEST_SKIP() << "processes cannot be traced here";
      killed = *result;
      const std::string now = contents(folder);
      ASSERT_TRUE(now == before || now == after) << "killed before system call " << call << ":\n" << now;
      states.insert(now);
      if (now == before) change(folder);
      ASSERT_EQ(contents(folder), after) << "the change was repeated after a kill before call " << call;
    }
    EXPECT_EQ(states.size(), 2U) << call << " calls";
    EXPECT_GT(call, 10);
  }

  static void build_first(const std::string& folder) {
    build_index(folder, random_vectors({.rows = 150, .vocab_size = 20}, 1, "a"),
                {.largest_weight = 3, .window = 64, .threads = 1});
  }
};

TEST_F(Killed, BuildingLeavesNoIndexOrACompleteOne) {
  expect_before_or_after([](const std::string& folder) { std::filesystem::create_directories(folder); }, build_first);
}

TEST_F(Killed, OverwritingLeavesTheOldOrTheNewIndex) {
  expect_before_or_after(build_first, [](const std::string& folder) {
    build_index(folder, random_vectors({.rows = 90, .vocab_size = 30}, 2, "b"), {.overwrite = true, .threads = 1});
  });
}

TEST_F(Killed, AddingLeavesAllOrNothing) {
  expect_before_or_after(build_first, [](const std::string& folder) {
    add_documents(folder, random_vectors({.rows = 40, .vocab_size = 20}, 2, "b"), false, 1);
  });
}

TEST_F(Killed, ReplacingLeavesTheOldOrTheNewDocuments) {
  expect_before_or_after(build_first, [](const std::string& folder) {
    add_documents(folder, random_vectors({.rows = 40, .vocab_size = 20}, 2, "a"), true, 1);
  });
}

TEST_F(Killed, RemovingLeavesAllOrNothing) {
  expect_before_or_after(build_first, [](const std::string& folder) {
    const std::vector<std::string> ids = {"a3", "a77", "a149"};
    remove_documents(folder, ids, /*missing_ok=*/true, 1);
  });
}

// A compaction after a removal renumbers the documents but changes no search result. `contents` does not show document numbers, so it must
// stay the same.
TEST_F(Killed, CompactingKeepsTheDocuments) {
  const auto prepare = [](const std::string& folder) {
    build_first(folder);
    const std::vector<std::string> ids = {"a3", "a77", "a149"};
    remove_documents(folder, ids, false, 1);
  };
  prepare(path("start"));
  const std::string expected = contents(path("start"));
  bool compacted = false, uncompacted = false;
  for (int call = 0; !(compacted && uncompacted && call > 10); ++call) {
    std::filesystem::remove_all(path("try"));
    std::filesystem::copy(path("start"), path("try"), std::filesystem::copy_options::recursive);
    const std::optional<bool> killed = run_until(call, [&] { compact_index(path("try"), 1); });
    if (!killed) GTEST_SKIP() << "processes cannot be traced here";
    ASSERT_EQ(contents(path("try")), expected) << "killed before system call " << call;
    const bool done = Index(path("try"), 1).document_numbers() == 147;
    (done ? compacted : uncompacted) = true;
    if (!*killed) break;
  }
  EXPECT_TRUE(compacted);
  EXPECT_TRUE(uncompacted);
}

}  // namespace
}  // namespace tessera::index
