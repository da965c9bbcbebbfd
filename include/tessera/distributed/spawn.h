#pragma once

#include <array>
#include <csignal>
#include <string>
#include <vector>

namespace tessera {

/// Signals that a training run answers by saving and leaving.
inline constexpr std::array kSavingSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

/// Whether the signal is for this program: not a SIGHUP that whoever started it has it ignore, as nohup does.
bool is_heeded(int signal);

/// A TCP port of this machine that was free a moment ago.
int free_port();

/// Runs this program again in `count` processes, with the given arguments (without the program's name) and torchrun's
/// variables set, and waits for them. kSavingSignals that are heeded are passed on to all. When one fails, the others get
/// SIGTERM, ten seconds later (a stopped one at once) SIGKILL, and a line on stderr names it. Workers share the cores
/// through OMP_NUM_THREADS unless it is set. Workers end with this process, even when it is killed. Returns the exit
/// code of the first that failed (128 + signal when a signal killed it), or 0. Throws UserError when no process can be
/// started.
int spawn_workers(const std::string& program, int count, const std::vector<std::string>& arguments);

/// The program's arguments without an option and its value ("--nproc 2", "--nproc=2"): those of the processes that it starts.
std::vector<std::string> arguments_without(const std::string& option, int argc, char** argv);

}  // namespace tessera
