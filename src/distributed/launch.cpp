#include <charconv>
#include <limits>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/distributed/launch.h>
#include <tessera/distributed/spawn.h>

namespace tessera {
namespace {

constexpr int kDefaultPort = 29500;  // the same as torchrun's

// Reads the variables of one launcher; every error message names the launcher.
class Launcher {
 public:
  Launcher(std::string name, const Variables& variables) : name_(std::move(name)), variables_(variables) {}

  const std::string* find(const std::string& key) const {
    const auto found = variables_.find(key);
    return found == variables_.end() || found->second.empty() ? nullptr : &found->second;
  }

  // Returns the variable `key`. `because` names a variable that is set and requires `key`.
  const std::string& text(const std::string& key, const std::string& because) const {
    const std::string* value = find(key);
    if (value == nullptr)
      user_error("launch by ", name_, ": ", key, " is missing, though ", because, " is set: set both, or neither to ",
                 "train in one process");
    return *value;
  }

  int number(const std::string& key, const std::string& value, int low, int high) const {
    int out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (!whole || out < low || out > high) {
      const std::string expected = high == std::numeric_limits<int>::max()
                                       ? concat("a whole number of at least ", low)
                                       : concat("a whole number from ", low, " to ", high);
      user_error("launch by ", name_, ": ", key, " must be ", expected, ", got \"", value, "\"");
    }
    return out;
  }

  int number(const std::string& key, const std::string& because, int low = 0) const {
    return number(key, text(key, because), low, std::numeric_limits<int>::max());
  }

  // Returns the rank, the size and the local rank, and checks that they are consistent.
  LaunchEnvironment ranks(const std::string& rank, const std::string& size, const std::string& local_rank,
                          const std::string& local_size) const {
    LaunchEnvironment out;
    out.size = number(size, find(rank) != nullptr ? rank : local_rank, 1);
    out.rank = number(rank, size);
    if (out.rank >= out.size)
      user_error("launch by ", name_, ": ", rank, " is ", out.rank, ", but ", size, " is ", out.size,
                 ": ranks count from 0 to ", out.size - 1);
    out.local_rank = number(local_rank, rank);
    const bool known = find(local_size) != nullptr;
    const int here = known ? number(local_size, rank, 1) : out.size;
    if (here > out.size)
      user_error("launch by ", name_, ": ", local_size, " is ", here, ", but ", size, " is only ", out.size);
    if (out.local_rank >= here)
      user_error("launch by ", name_, ": ", local_rank, " is ", out.local_rank, ", but ", known ? local_size : size,
                 " is ", here, ": local ranks count from 0 to ", here - 1);
    return out;
  }

  int port(int otherwise) const {
    const std::string* value = find("MASTER_PORT");
    return value == nullptr ? otherwise : number("MASTER_PORT", *value, 1, 65535);
  }

 private:
  std::string name_;
  const Variables& variables_;
};

LaunchEnvironment from_torchrun(const Launcher& launcher) {
  LaunchEnvironment out = launcher.ranks("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  if (out.alone()) return out;
  out.address = launcher.text("MASTER_ADDR", "WORLD_SIZE");
  launcher.text("MASTER_PORT", "WORLD_SIZE");
  out.port = launcher.port(kDefaultPort);
  if (launcher.find("TORCHELASTIC_RESTART_COUNT") != nullptr) out.attempt = launcher.number("TORCHELASTIC_RESTART_COUNT", "");
  if (launcher.find(kStoreSocket) != nullptr) out.socket = launcher.number(kStoreSocket, "");
  return out;
}

LaunchEnvironment from_open_mpi(const Launcher& launcher) {
  const std::string prefix = "OMPI_COMM_WORLD_";
  LaunchEnvironment out =
      launcher.ranks(prefix + "RANK", prefix + "SIZE", prefix + "LOCAL_RANK", prefix + "LOCAL_SIZE");
  if (out.alone()) return out;
  const std::string* address = launcher.find("MASTER_ADDR");
  const std::string* here = launcher.find(prefix + "LOCAL_SIZE");
  if (address != nullptr)
    out.address = *address;
  else if (here != nullptr && launcher.number(prefix + "LOCAL_SIZE", "", 1) == out.size)
    out.address = "127.0.0.1";
  else
    user_error(
        "launch by Open MPI over several machines: MASTER_ADDR is missing: pass the first machine's name on, "
        "mpirun -x MASTER_ADDR=HOST");
  out.port = launcher.port(kDefaultPort);
  return out;
}

LaunchEnvironment from_slurm(const Launcher& launcher) {
  // With `srun -n K` inside a larger job, the numbers of the job step apply, not those of the job.
  const bool step = launcher.find("SLURM_STEP_NUM_TASKS") != nullptr;
  LaunchEnvironment out = launcher.ranks("SLURM_PROCID", step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                                         "SLURM_LOCALID", "SLURM_LOCAL_SIZE");
  if (out.alone()) return out;
  if (const std::string* address = launcher.find("MASTER_ADDR"))
    out.address = *address;
  else if (const std::string* hosts = launcher.find("SLURM_STEP_NODELIST"))
    out.address = first_host(*hosts);
  else
    out.address = first_host(launcher.text("SLURM_JOB_NODELIST", "SLURM_NTASKS"));
  // Two jobs on one machine get different ports, but all ranks of one job get the same port.
  int port = kDefaultPort;
  if (const std::string* job = launcher.find("SLURM_JOB_ID"))
    port = 20000 + launcher.number("SLURM_JOB_ID", *job, 0, std::numeric_limits<int>::max()) % 10000;
  out.port = launcher.port(port);
  return out;
}

}  // namespace

Nodes nodes_of(const Variables& variables) {
  const Launcher launcher("--nproc on several machines", variables);
  Nodes out;
  if (const std::string* count = launcher.find("PET_NNODES"))
    out.count = launcher.number("PET_NNODES", *count, 1, std::numeric_limits<int>::max());
  if (out.count == 1) return out;
  out.own = launcher.number("PET_NODE_RANK", launcher.text("PET_NODE_RANK", "PET_NNODES"), 0, out.count - 1);
  out.address = launcher.text("PET_MASTER_ADDR", "PET_NNODES");
  out.port = launcher.number("PET_MASTER_PORT", launcher.text("PET_MASTER_PORT", "PET_NNODES"), 1, 65535);
  return out;
}

LaunchEnvironment launch_environment(const Variables& variables) {
  const Launcher torchrun("torchrun", variables), open_mpi("Open MPI", variables), slurm("SLURM", variables);
  const auto any = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (torchrun.find(key) != nullptr) return true;
    return false;
  };
  if (any({"RANK", "WORLD_SIZE", "LOCAL_RANK"})) return from_torchrun(torchrun);
  if (any({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) return from_open_mpi(open_mpi);
  if (!any({"SLURM_PROCID"})) return {};
  // A batch script without srun has SLURM_PROCID=0, too, but a number of tasks only if the job asks for one.
  const bool counted = any({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  if (counted || *slurm.find("SLURM_PROCID") != "0") return from_slurm(slurm);
  return {};
}

Variables environment_variables() {
  Variables out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

// A host name may contain a few bracketed groups, each of which is a list of numbers and ranges. The first number of each
// group is used.
std::string first_host(const std::string& node_list) {
  std::string out;
  std::size_t at = 0;
  const auto malformed = [&] {
    user_error("SLURM node list \"", node_list, "\": malformed: expected a list like gpu[003-007,012],login1");
  };
  while (at < node_list.size() && node_list[at] != ',') {
    if (node_list[at] == ']') malformed();
    if (node_list[at] != '[') {
      out += node_list[at++];
      continue;
    }
    const std::size_t close = node_list.find(']', at);
    if (close == std::string::npos) malformed();
    const std::string group = node_list.substr(at + 1, close - at - 1);
    const std::string number = group.substr(0, group.find_first_of(",-"));
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) malformed();
    out += number;
    at = close + 1;
  }
  if (out.empty()) malformed();
  return out;
}

}  // namespace tessera
