#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/distributed/launch.h>
#include <tessera/distributed/spawn.h>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{10};  // time between SIGTERM and SIGKILL for the other workers after one has failed

class Workers {
 public:
  explicit Workers(std::string program) : program_(std::move(program)) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGCHLD);
    for (const int signal : kSavingSignals)
      if (is_heeded(signal)) sigaddset(&signals_, signal);
    sigprocmask(SIG_BLOCK, &signals_, &old_mask_);
  }
  ~Workers() { sigprocmask(SIG_SETMASK, &old_mask_, nullptr); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // The worker inherits the socket, unless it is -1.
  void start(int rank, const std::vector<std::string>& arguments, const Variables& variables, int socket) {
    std::vector<std::string> words{program_};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<std::string> settings;
    for (const auto& [key, value] : variables) settings.push_back(key + "=" + value);
    const std::vector<char*> argv = pointers(words), environment = pointers(settings);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) {
      const std::string reason = std::strerror(errno);
      tell_all(SIGKILL);
      user_error("cannot start worker ", rank, ": ", reason);
    }
    if (child > 0) {
      ranks_[child] = rank;
      return;
    }
    // Puts the worker into its own process group. The terminal's Ctrl-C then reaches only the parent, which passes it
    // on once.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
    if (socket >= 0) ::fcntl(socket, F_SETFD, 0);
    ::execve("/proc/self/exe", argv.data(), environment.data());
    ::_exit(127);
  }

  int wait() {
    while (!ranks_.empty()) {
      const timespec second{1, 0};
      const int signal = kill_at_ ? ::sigtimedwait(&signals_, nullptr, &second) : ::sigwaitinfo(&signals_, nullptr);
      if (signal == SIGCHLD) {
        reap();
      } else if (signal > 0) {
        passed_on_ = signal;
        tell_all(signal);
      }
      if (kill_at_ && Clock::now() >= *kill_at_) tell_all(SIGKILL);
    }
    return code_;
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> out;
    for (std::string& word : words) out.push_back(word.data());
    out.push_back(nullptr);
    return out;
  }

  void tell_all(int signal) const {
    for (const auto& [process, rank] : ranks_) ::kill(process, signal);
  }

  void reap() {
    struct Ended {
      int rank, status;
    };
    std::vector<Ended> all;
    int status = 0;
    for (pid_t process; (process = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
      const auto found = ranks_.find(process);
      if (found == ranks_.end()) continue;
      stopped_.erase(process);
      if (WIFSTOPPED(status)) stopped_.insert(process);
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) continue;
      all.push_back({found->second, status});
      ranks_.erase(found);
    }
    // Several workers may have ended since the last check. A worker that was killed by a signal is the likely cause, so
    // it is reported first.
    std::stable_partition(all.begin(), all.end(), [](const Ended& each) { return WIFSIGNALED(each.status); });
    for (const Ended& each : all) {
      const int code = WIFSIGNALED(each.status) ? 128 + WTERMSIG(each.status) : WEXITSTATUS(each.status);
      if (code != 0 && code_ == 0) failed(each.rank, code, each.status);
    }
  }

  void failed(int rank, int code, int status) {
    code_ = code;
    kill_at_ = Clock::now() + kGrace;
    // If a signal was passed on to the workers, all of them exit on their own, so nothing is reported and no worker is stopped.
    if (code == 128 + passed_on_ && WIFEXITED(status)) return;
    // One string is one write, so the other ranks cannot write into the line.
    std::cerr << concat(program_, ": rank ", rank,
                        WIFSIGNALED(status) ? concat(" was killed by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")")
                                            : concat(" failed with exit code ", code),
                        ranks_.empty() ? "" : "; stopping the others", "\n");
    tell_all(SIGTERM);
    // A process that SIGSTOP has suspended does not react to SIGTERM, so waiting for it would be pointless.
    for (const pid_t process : stopped_) ::kill(process, SIGKILL);
  }

  std::string program_;
  sigset_t signals_{}, old_mask_{};
  std::map<pid_t, int> ranks_;
  std::set<pid_t> stopped_;  // stopped by SIGSTOP
  int code_ = 0;
  int passed_on_ = 0;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace

bool is_heeded(int signal) {
  struct sigaction now {};
  return signal != SIGHUP || ::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN;
}

ReservedPort::ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = socket_ >= 0 && ::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int reason = errno;
  number_ = ntohs(address.sin_port);
  if (bound) return;
  close();
  user_error("cannot find a free TCP port: ", std::strerror(reason));
}

void ReservedPort::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

int spawn_workers(const std::string& program, int count, const std::vector<std::string>& arguments) {
  Variables variables = environment_variables();
  const Nodes nodes = nodes_of(variables);
  variables["WORLD_SIZE"] = std::to_string(nodes.count * count);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(count);
  variables["MASTER_ADDR"] = nodes.address;
  variables.erase(kStoreSocket);
  std::optional<ReservedPort> reserved;
  if (nodes.port == 0) reserved.emplace();
  variables["MASTER_PORT"] = std::to_string(reserved ? reserved->number() : nodes.port);
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(count));
  variables.emplace("OMP_NUM_THREADS", std::to_string(cores));

  Workers workers(program);
  for (int local = 0; local < count; ++local) {
    const int rank = nodes.own * count + local;
    variables["RANK"] = std::to_string(rank);
    variables["LOCAL_RANK"] = std::to_string(local);
    Variables own = variables;
    if (reserved && rank == 0) own[kStoreSocket] = std::to_string(reserved->socket());
    workers.start(rank, arguments, own, reserved ? reserved->socket() : -1);
    reserved.reset();
  }
  return workers.wait();
}

std::vector<std::string> arguments_without(const std::string& option, int argc, char** argv) {
  std::vector<std::string> out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == option)
      ++i;
    else if (!word.starts_with(option + "="))
      out.push_back(word);
  }
  return out;
}

}  // namespace tessera
