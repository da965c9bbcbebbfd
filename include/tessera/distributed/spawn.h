#pragma once

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include <tessera/distributed/launch.h>

namespace tessera {

/// The signals on which a training run saves a checkpoint and exits.
inline constexpr std::array kSavingSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

/// Whether this program should act on the signal. The result is false only for a SIGHUP that the parent process set to be ignored, as nohup
/// does.
bool is_heeded(int signal);

/// A free TCP port of the loopback, which no other process can take: a socket is bound to it. The process of rank 0 inherits the socket and
/// listens on it (LaunchEnvironment::socket).
class ReservedPort {
 public:
  /// Throws UserError if no port is free.
  ReservedPort();
  ~ReservedPort() { close(); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  int number() const { return number_; }
  int socket() const { return socket_; }
  /// Closes this process's socket. Only rank 0 may keep one, or else other ranks could still connect to the port when rank 0 is gone.
  void close();

 private:
  int socket_, number_ = 0;
};

/// The environment variable that names LaunchEnvironment::socket.
inline constexpr const char* kStoreSocket = "TESSERA_STORE_SOCKET";

/// The machines of a job on which spawn_workers() is called, on each with the same number of processes.
struct Nodes {
  int count = 1, own = 0;  // number of machines, and the index of this one
  std::string address = "127.0.0.1";
  int port = 0;  // at which rank 0 listens; 0: any free port
};

/// Reads PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT, from which torchrun takes its options, too. Without PET_NNODES, the
/// job runs on this machine only. Throws UserError naming the variable that is missing or wrong.
Nodes nodes_of(const Variables& variables);

/// Runs this program again in `count` processes, with the given arguments (without the program's name) and torchrun's variables set, and
/// waits for them. On several machines (nodes_of()), these processes are this machine's ranks. The kSavingSignals for which is_heeded() returns true are passed on to all processes. When one process fails, a line on
/// stderr names it, and the others get SIGTERM and ten seconds later SIGKILL (a stopped process gets SIGKILL at once). If OMP_NUM_THREADS
/// is not set, it is set so that the processes share the cores evenly. The processes end when this process ends, even if it is killed.
/// Returns the exit code of the first process that failed (128 + signal if a signal killed it), or 0. Throws UserError if a process cannot
/// be started.
int spawn_workers(const std::string& program, int count, const std::vector<std::string>& arguments);

/// Returns the program's arguments without the given option and its value ("--nproc 2", "--nproc=2"), for the processes that the program
/// starts.
std::vector<std::string> arguments_without(const std::string& option, int argc, char** argv);

}  // namespace tessera
