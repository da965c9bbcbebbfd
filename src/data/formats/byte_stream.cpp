#include "src/data/formats/byte_stream.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/data/stream.h>

extern char** environ;

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kSlice{100};  // how often a wait checks `stop`

std::string seconds_text(std::chrono::milliseconds time) {
  return concat(static_cast<double>(time.count()) / 1000, " s");
}

class FileBytes : public ByteStream {
 public:
  FileBytes(const std::string& path, std::stop_token stop)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), stop_(std::move(stop)) {
    if (descriptor_ < 0) throw StreamError(concat("cannot be opened: ", std::strerror(errno)));
  }
  ~FileBytes() override { ::close(descriptor_); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    while (true) {
      if (stop_.stop_requested()) throw Stopped();  // a stream may skip many samples before it returns one
      const ssize_t count = ::read(descriptor_, out, size);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR) throw StreamError(concat("cannot be read: ", std::strerror(errno)));
    }
  }

 private:
  int descriptor_;
  const std::stop_token stop_;
};

class CommandBytes : public ByteStream {
 public:
  CommandBytes(const std::string& command, const StreamWaitPolicy& wait_policy) : patience_(wait_policy) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw StreamError(concat("no pipe: ", std::strerror(errno)));
    descriptor_ = ends[0];
    const int failed = spawn(command, ends[1]);
    ::close(ends[1]);
    if (failed == 0) return;
    ::close(descriptor_);
    throw StreamError(concat("cannot be started: ", std::strerror(failed)));
  }

  ~CommandBytes() override {
    ::close(descriptor_);
    end_process();
  }
  CommandBytes(const CommandBytes&) = delete;
  CommandBytes& operator=(const CommandBytes&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    const auto deadline = Clock::now() + patience_.timeout;
    while (true) {
      pollfd waited{descriptor_, POLLIN, 0};
      const int ready = ::poll(&waited, 1, static_cast<int>(kSlice.count()));
      if (patience_.stop.stop_requested()) throw Stopped();
      if (ready <= 0) {
        if (Clock::now() > deadline) throw StreamError("wrote no output for " + seconds_text(patience_.timeout));
        continue;
      }
      const ssize_t count = ::read(descriptor_, out, size);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw StreamError(concat("cannot be read: ", std::strerror(errno)));
      if (count == 0) check_exit();
      return static_cast<std::size_t>(count);
    }
  }

 private:
  int spawn(const std::string& command, int output) {
    posix_spawn_file_actions_t actions{};
    posix_spawnattr_t attributes{};
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    // The command gets its own process group, so that a whole pipeline can be killed. It also gets the signal settings that a
    // shell expects.
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t signals{};
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes, &signals);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
    ::posix_spawnattr_setsigdefault(&attributes, &signals);
    std::array<char*, 4> arguments = {const_cast<char*>("sh"), const_cast<char*>("-c"),
                                      const_cast<char*>(command.c_str()), nullptr};
    const int failed = ::posix_spawn(&process_, "/bin/sh", &actions, &attributes, arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) process_ = -1;
    return failed;
  }

  // Called at the end of the output, because only the exit code shows whether the output is complete.
  void check_exit() {
    if (process_ < 0) return;
    const auto deadline = Clock::now() + patience_.timeout;
    int status = 0;
    while (::waitpid(process_, &status, WNOHANG) == 0) {
      if (patience_.stop.stop_requested()) throw Stopped();
      if (Clock::now() > deadline) throw StreamError("closed its output, but did not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    process_ = -1;
    if (WIFSIGNALED(status)) throw StreamError(concat("was ended by signal ", WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0) throw StreamError(concat("ended with exit code ", WEXITSTATUS(status)));
  }

  void end_process() {
    if (process_ < 0) return;
    ::kill(-process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  StreamWaitPolicy patience_;
  int descriptor_ = -1;
  pid_t process_ = -1;
};

}  // namespace

std::unique_ptr<ByteStream> open_bytes(const std::string& address, const StreamWaitPolicy& wait_policy) {
  constexpr std::string_view kPipe = "pipe:";
  if (address.starts_with(kPipe)) return std::make_unique<CommandBytes>(address.substr(kPipe.size()), wait_policy);
  return std::make_unique<FileBytes>(address, wait_policy.stop);
}

}  // namespace tessera
