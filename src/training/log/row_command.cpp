#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/training/log/row_command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kLook{20};

// The environment of this process, with additional variables.
class Environment {
 public:
  explicit Environment(const RowCommand::Variables& more) {
    for (char** entry = environ; *entry != nullptr; ++entry) texts_.emplace_back(*entry);
    for (const auto& [name, value] : more) {
      std::erase_if(texts_, [&](const std::string& text) { return text.starts_with(name + "="); });
      texts_.push_back(name + "=" + value);
    }
    for (std::string& text : texts_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

// Starts a shell that reads from `input`, in its own process group and with an empty signal mask.
pid_t start_shell(const std::string& command, int input, const RowCommand::Variables& variables) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  const char* const words[] = {"sh", "-c", command.c_str(), nullptr};
  Environment environment(variables);
  pid_t process = 0;
  const int failure =
      ::posix_spawn(&process, "/bin/sh", &files, &attributes, const_cast<char* const*>(words), environment.get());
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (failure != 0) user_error("log.command: cannot start /bin/sh: ", std::strerror(failure));
  return process;
}

// Blocks SIGPIPE in this thread, so that writing to a command that has ended fails with an error instead of ending this process.
void block_broken_pipe_signal() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace

RowCommand::RowCommand(std::string command, const Variables& environment, std::size_t most_waiting)
    : command_(std::move(command)), most_waiting_(most_waiting) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) user_error("log.command: cannot make a pipe: ", std::strerror(errno));
  input_ = ends[1];
  try {
    process_ = start_shell(command_, ends[0], environment);
  } catch (...) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw;
  }
  ::close(ends[0]);
  ::fcntl(input_, F_SETFL, O_NONBLOCK);
  writer_ = std::thread([this] { write_rows(); });
}

RowCommand::~RowCommand() {
  close(std::chrono::milliseconds(0));
}

void RowCommand::send(std::string row) {
  const std::lock_guard lock(mutex_);
  if (broken_ || deadline_) return;
  if (waiting_.size() >= most_waiting_) {
    ++dropped_;
    return;
  }
  waiting_.push_back(std::move(row) + "\n");
  changed_.notify_one();
}

void RowCommand::write_rows() {
  block_broken_pipe_signal();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !waiting_.empty() || deadline_; });
    if (waiting_.empty()) break;
    const std::string row = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const bool whole = write_row(row);
    lock.lock();
    if (!whole) {
      broken_ = true;
      if (deadline_ && Clock::now() >= *deadline_) dropped_ += static_cast<std::int64_t>(waiting_.size()) + 1;
      waiting_.clear();
      break;
    }
    ++written_;
  }
  ::close(input_);
}

bool RowCommand::write_row(const std::string& row) {
  for (std::size_t done = 0; done < row.size();) {
    const ssize_t count = ::write(input_, row.data() + done, row.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || out_of_patience()) return false;
    pollfd room{input_, POLLOUT, 0};
    ::poll(&room, 1, static_cast<int>(kLook.count()));
  }
  return true;
}

bool RowCommand::out_of_patience() {
  const std::lock_guard lock(mutex_);
  return deadline_ && Clock::now() >= *deadline_;
}

bool RowCommand::ended() {
  int status = 0;
  if (!status_ && ::waitpid(process_, &status, WNOHANG) == process_) status_ = status;
  return status_.has_value();
}

std::string RowCommand::ending() {
  const std::lock_guard lock(mutex_);
  return concat("log.command: ", command_, ": ",
                WIFEXITED(*status_) ? concat("ended with exit code ", WEXITSTATUS(*status_))
                                    : concat("was ended by signal ", WTERMSIG(*status_)),
                " after ", written_, " rows");
}

std::optional<std::string> RowCommand::news() {
  if (told_ || !ended()) return std::nullopt;
  told_ = true;
  return ending() + "; training continues without it";
}

std::vector<std::string> RowCommand::close(std::chrono::milliseconds patience) {
  if (!writer_.joinable()) return {};
  const Clock::time_point deadline = Clock::now() + patience;
  {
    const std::lock_guard lock(mutex_);
    deadline_ = deadline;
  }
  changed_.notify_one();
  writer_.join();
  while (!ended() && Clock::now() < deadline) std::this_thread::sleep_for(kLook);
  std::vector<std::string> lines;
  if (dropped_ > 0)
    lines.push_back(concat("log.command: ", command_, ": ", dropped_, " rows were dropped and ", written_,
                           " written, because it reads too slowly"));
  if (!ended())
    lines.push_back(concat("log.command: ", command_, ": is still running ",
                           format_duration(1e-3 * static_cast<double>(patience.count())),
                           " after the last row; it is left running"));
  else if (!told_ && (*status_ != 0 || broken_))
    lines.push_back(ending());
  told_ = true;
  return lines;
}

}  // namespace tessera
