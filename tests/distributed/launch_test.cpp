#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "src/distributed/connection.h"
#include "tests/support/contains.h"
#include "tests/support/error_of.h"
#include <tessera/distributed/launch.h>
#include <tessera/distributed/spawn.h>

namespace tessera {
namespace {

const Variables kTorchrun = {
    {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29401"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_NODELIST", "gpu[07-09],login"},
                          {"SLURM_JOB_ID", "1234567"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

Variables with(Variables variables, const Variables& changes) {
  for (const auto& [key, value] : changes) variables[key] = value;
  return variables;
}

Variables without(Variables variables, const std::string& key) {
  variables.erase(key);
  return variables;
}

std::string launch_error(const Variables& variables) {
  return error_of([&] { launch_environment(variables); });
}

TEST(Launch, NothingSetMeansASingleProcess) {
  const LaunchEnvironment alone = launch_environment({{"PATH", "/bin"}, {"MASTER_PORT", "1"}});
  EXPECT_TRUE(alone.alone());
  EXPECT_EQ(alone.rank, 0);
}

TEST(Launch, ReadsTheMachinesOfAJob) {
  EXPECT_EQ(nodes_of({}).count, 1);
  const Variables variables = {{"PET_NNODES", "4"}, {"PET_NODE_RANK", "3"}, {"PET_MASTER_ADDR", "node0"}, {"PET_MASTER_PORT", "29401"}};
  const Nodes nodes = nodes_of(variables);
  EXPECT_EQ(nodes.count, 4);
  EXPECT_EQ(nodes.own, 3);
  EXPECT_EQ(nodes.address, "node0");
  EXPECT_EQ(nodes.port, 29401);
  const auto error = [](const Variables& given) { return error_of([&] { nodes_of(given); }); };
  EXPECT_TRUE(contains(error(without(variables, "PET_NODE_RANK")), "launch by --nproc on several machines: PET_NODE_RANK is missing"));
  EXPECT_TRUE(contains(error(without(variables, "PET_MASTER_ADDR")), "PET_MASTER_ADDR is missing"));
  EXPECT_TRUE(contains(error(with(variables, {{"PET_NODE_RANK", "4"}})), "PET_NODE_RANK must be a whole number from 0 to 3"));
  EXPECT_TRUE(contains(error(with(variables, {{"PET_NNODES", "2:4"}})), "PET_NNODES must be a whole number of at least 1"));
}

TEST(Launch, ReadsTorchrun) {
  const LaunchEnvironment got = launch_environment(kTorchrun);
  EXPECT_EQ(got.rank, 5);
  EXPECT_EQ(got.size, 8);
  EXPECT_EQ(got.local_rank, 1);
  EXPECT_EQ(got.address, "node0");
  EXPECT_EQ(got.port, 29401);
  EXPECT_EQ(got.attempt, 0);
  EXPECT_EQ(launch_environment(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}})).attempt, 2);
  EXPECT_EQ(got.socket, -1);
  EXPECT_EQ(launch_environment(with(kTorchrun, {{kStoreSocket, "7"}})).socket, 7);
}

TEST(ReservedPort, CannotBeTakenBeforeRank0ListensOnIt) {
  ReservedPort port;
  const auto can_bind = [&] {
    const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int reuse = 1;  // as c10d's store and Gloo set it
    ::setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port.number()));
    const bool bound = ::bind(other, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(other);
    return bound;
  };
  EXPECT_FALSE(can_bind());
  port.close();
  EXPECT_TRUE(can_bind());
}

TEST(Launch, ReadsSlurm) {
  const LaunchEnvironment got = launch_environment(kSlurm);
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.size, 4);
  EXPECT_EQ(got.local_rank, 1);
  EXPECT_EQ(got.address, "gpu07");
  EXPECT_EQ(got.port, 24567);
  const LaunchEnvironment step = launch_environment(
      with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_STEP_NODELIST", "gpu08"}, {"MASTER_PORT", "5000"}}));
  EXPECT_EQ(step.size, 16);
  EXPECT_EQ(step.address, "gpu08");
  EXPECT_EQ(step.port, 5000);
}

TEST(Launch, ReadsOpenMpi) {
  const LaunchEnvironment got = launch_environment(kOpenMpi);
  EXPECT_EQ(got.rank, 1);
  EXPECT_EQ(got.size, 2);
  EXPECT_EQ(got.local_rank, 1);
  EXPECT_EQ(got.address, "127.0.0.1");
  EXPECT_EQ(got.port, 29500);
}

TEST(Launch, PrefersTorchrunAndMpiOverSlurm) {
  EXPECT_EQ(launch_environment(with(kSlurm, kTorchrun)).size, 8);
  EXPECT_EQ(launch_environment(with(kSlurm, kOpenMpi)).size, 2);
}

TEST(Launch, OneSlurmTaskIsASingleProcess) {
  EXPECT_TRUE(launch_environment({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}}).alone());
}

TEST(Launch, ABatchScriptWithoutANumberOfTasksIsASingleProcess) {
  EXPECT_TRUE(launch_environment({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "gpu07"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}})
                  .alone());
}

TEST(Launch, ErrorsNameContradictions) {
  EXPECT_EQ(launch_error(without(kTorchrun, "RANK")),
            "launch by torchrun: RANK is missing, though WORLD_SIZE is set: set both, or neither to train in one "
            "process");
  EXPECT_EQ(launch_error(without(kTorchrun, "WORLD_SIZE")),
            "launch by torchrun: WORLD_SIZE is missing, though RANK is set: set both, or neither to train in one "
            "process");
  EXPECT_EQ(launch_error({{"LOCAL_RANK", "0"}}),
            "launch by torchrun: WORLD_SIZE is missing, though LOCAL_RANK is set: set both, or neither to train in "
            "one process");
  EXPECT_TRUE(contains(launch_error(without(kTorchrun, "MASTER_ADDR")), "MASTER_ADDR is missing"));
  EXPECT_TRUE(contains(launch_error(without(kTorchrun, "MASTER_PORT")), "MASTER_PORT is missing"));
  EXPECT_EQ(launch_error(with(kTorchrun, {{"RANK", "8"}})),
            "launch by torchrun: RANK is 8, but WORLD_SIZE is 8: ranks count from 0 to 7");
  EXPECT_EQ(launch_error(with(kTorchrun, {{"RANK", "two"}})),
            "launch by torchrun: RANK must be a whole number of at least 0, got \"two\"");
  EXPECT_EQ(launch_error(with(kTorchrun, {{"WORLD_SIZE", "0"}})),
            "launch by torchrun: WORLD_SIZE must be a whole number of at least 1, got \"0\"");
  EXPECT_EQ(launch_error(with(kTorchrun, {{"MASTER_PORT", "70000"}})),
            "launch by torchrun: MASTER_PORT must be a whole number from 1 to 65535, got \"70000\"");
  EXPECT_EQ(launch_error(with(kTorchrun, {{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})),
            "launch by torchrun: LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2: local ranks count from 0 to 1");
  EXPECT_EQ(launch_error(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})),
            "launch by torchrun: LOCAL_WORLD_SIZE is 9, but WORLD_SIZE is only 8");
  EXPECT_TRUE(contains(launch_error(without(kSlurm, "SLURM_JOB_NODELIST")), "SLURM_JOB_NODELIST is missing"));
  EXPECT_TRUE(
      contains(launch_error(without(kSlurm, "SLURM_NTASKS")), "SLURM_NTASKS is missing, though SLURM_PROCID is set"));
  EXPECT_EQ(launch_error(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}})),
            "launch by Open MPI over several machines: MASTER_ADDR is missing: pass the first machine's name on, "
            "mpirun -x MASTER_ADDR=HOST");
}

TEST(NodeList, ReturnsTheFirstHost) {
  EXPECT_EQ(first_host("login1"), "login1");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("gpu[003-007,12],login1"), "gpu003");
  EXPECT_EQ(first_host("gpu[12]"), "gpu12");
  EXPECT_EQ(first_host("rack[1-2]node[05,07]-ib"), "rack1node05-ib");
  EXPECT_EQ(first_host("n-1.cluster.org,n-2"), "n-1.cluster.org");
}

TEST(NodeList, RejectsMalformedLists) {
  for (const char* list : {"", ",a", "gpu[", "gpu[]", "gpu[a-b]", "gpu]1", "gpu[3-7"}) {
    EXPECT_THROW(first_host(list), UserError) << list;
  }
}

TEST(Route, LoopbackRoutesToItselfAndAnUnknownHostToNothing) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_towards("localhost").empty(), false);
  EXPECT_EQ(address_towards("no-such-host.invalid"), "");
}

}  // namespace
}  // namespace tessera
