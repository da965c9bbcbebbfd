#include "src/training/log/row_command.h"

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
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kLook{20};

// Starts a shell that reads from `input`, in its own process group and with an empty signal mask. Returns 0 and sets errno on failure.
pid_t start_shell(const std::string& command, int input, const RowCommand::Variables& variables) {
  std::vector<std::string> words{"env"};
  for (const auto& [name, value] : variables) words.push_back(name + "=" + value);
  words.insert(words.end(), {"/bin/sh", "-c", command});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t process = 0;
  errno = ::posix_spawnp(&process, "env", &files, &attributes, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  return errno == 0 ? process : 0;
}

}  // namespace

RowCommand::RowCommand(std::string command, const Variables& environment, std::size_t most_waiting)
    : command_(std::move(command)), most_waiting_(most_waiting) {
  // Writing to a command that has ended must fail with an error instead of ending this process. Programs have such a handler already
  // (run_program).
  if (const auto handler = std::signal(SIGPIPE, [](int) {}); handler != SIG_DFL) std::signal(SIGPIPE, handler);
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) user_error("log.command: cannot make a pipe: ", std::strerror(errno));
  process_ = start_shell(command_, ends[0], environment);
  const int failure = errno;
  ::close(ends[0]);
  if (process_ == 0) {
    ::close(ends[1]);
    user_error("log.command: cannot start /bin/sh: ", std::strerror(failure));
  }
  input_ = ends[1];
  ::fcntl(input_, F_SETFL, O_NONBLOCK);
}

void RowCommand::send(const std::string& row) {
  if (broken_ || input_ < 0) return;
  write_waiting();
  if (waiting_.size() >= most_waiting_) {
    ++dropped_;
    return;
  }
  waiting_.push_back(row + "\n");
  write_waiting();
}

void RowCommand::write_waiting() {
  while (!waiting_.empty()) {
    std::string& row = waiting_.front();
    const ssize_t count = ::write(input_, row.data(), row.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) {
      broken_ = true;
      waiting_.clear();
      return;
    }
    row.erase(0, static_cast<std::size_t>(count));
    if (!row.empty()) continue;
    waiting_.pop_front();
    ++written_;
  }
}

bool RowCommand::ended() {
  int status = 0;
  if (!status_ && ::waitpid(process_, &status, WNOHANG) == process_) status_ = status;
  return status_.has_value();
}

std::string RowCommand::ending() const {
  return concat("log.command: ", command_, ": ",
                WIFEXITED(*status_) ? concat("ended with exit code ", WEXITSTATUS(*status_))
                                    : concat("was ended by signal ", WTERMSIG(*status_)),
                " after ", written_, " rows");
}

std::optional<std::string> RowCommand::news() {
  if (reported_ || !ended()) return std::nullopt;
  reported_ = true;
  return ending() + "; training continues without it";
}

std::vector<std::string> RowCommand::close(std::chrono::milliseconds patience) {
  if (input_ < 0) return {};
  const auto late = [deadline = std::chrono::steady_clock::now() + patience] { return std::chrono::steady_clock::now() >= deadline; };
  while (write_waiting(), !waiting_.empty() && !late()) {
    pollfd room{input_, POLLOUT, 0};
    ::poll(&room, 1, static_cast<int>(kLook.count()));
  }
  dropped_ += std::ssize(waiting_);
  ::close(std::exchange(input_, -1));
  while (!ended() && !late()) std::this_thread::sleep_for(kLook);
  std::vector<std::string> lines;
  if (dropped_ > 0)
    lines.push_back(concat("log.command: ", command_, ": ", dropped_, " rows were dropped and ", written_,
                           " written, because it reads too slowly"));
  if (!ended())
    lines.push_back(concat("log.command: ", command_, ": is still running ",
                           format_duration(1e-3 * static_cast<double>(patience.count())),
                           " after the last row; it is left running"));
  else if (!reported_ && (*status_ != 0 || broken_))
    lines.push_back(ending());
  reported_ = true;
  return lines;
}

}  // namespace tessera
