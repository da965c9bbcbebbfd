#pragma once

#include <map>
#include <string>

namespace tessera {

/// What a launcher passed to this process through environment variables.
struct LaunchEnvironment {
  int rank = 0;
  int size = 1;         // number of processes of the whole job
  int local_rank = 0;   // index of this process among the processes on its machine; selects the GPU
  std::string address;  // address at which rank 0 listens; empty if there is only one process
  int port = 0;
  int attempt = 0;  // how often torchrun has restarted the ranks; its store, behind the port, outlives the attempts
  int socket = -1;  // a socket that is bound to the port, on which rank 0's store listens and which the store closes; -1: rank 0 opens one

  bool alone() const { return size == 1; }
};

using Variables = std::map<std::string, std::string>;

/// Reads the variables of the launcher: torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT), Open
/// MPI (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE) or SLURM (SLURM_PROCID, SLURM_NTASKS or SLURM_STEP_NUM_TASKS, SLURM_LOCALID,
/// SLURM_JOB_NODELIST or SLURM_STEP_NODELIST). The launcher is torchrun if RANK, WORLD_SIZE or LOCAL_RANK is set; otherwise Open MPI if its
/// _RANK or _SIZE is set; otherwise SLURM if SLURM_PROCID is set. Without a launcher, the process is alone. With Open MPI, the address is
/// that of this machine if all ranks run here. With SLURM, the address is the first host of the list, and the port is derived from the
/// job's number. With Open MPI and SLURM, MASTER_ADDR and MASTER_PORT, if set, replace this address and port. Throws UserError naming the
/// variable that is missing or contradicts another variable.
LaunchEnvironment launch_environment(const Variables& variables);

/// Returns this process's environment.
Variables environment_variables();

/// Returns the first host of a SLURM node list: "gpu[003-007,12],login1" -> "gpu003". Throws UserError if it is
/// malformed.
std::string first_host(const std::string& node_list);

}  // namespace tessera
