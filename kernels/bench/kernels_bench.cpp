// Times each kernel on the CPU and, where there is one, on a GPU. The comparison with PyTorch's composed operations is
// tessera-bench's; this program needs no LibTorch.
#include <cstdio>
#include <fstream>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/bench/machine.h"

namespace tessera::kernels::bench {
namespace {

struct Row {
  std::string machine, kernel, shape, type;
  double seconds, flops, bytes, copy_bandwidth;
};

const char* name_of(DataType type) {
  return type == DataType::kFloat32 ? "float32" : "bfloat16";
}

class Bench {
 public:
  explicit Bench(Machine& machine)
      : machine_(machine), name_(machine.name()), copy_bandwidth_(machine.copy_bandwidth()) {}

  void sparsify_group(std::int64_t batch, std::int64_t tokens, std::int64_t patches, std::int64_t width,
                      DataType type) {
    SparsifyGroupProblem problem;
    problem.batch = batch;
    problem.tokens = tokens;
    problem.patches = patches;
    problem.width = width;
    problem.type = type;
    problem.threshold = paper_threshold(patches);
    const std::size_t token_bytes = batch * tokens * width * size_of(type),
                      patch_bytes = batch * patches * width * size_of(type);
    const std::size_t statistics_bytes = batch * tokens * kRowStatistics * sizeof(float);
    const ConstRows text{machine_.random(token_bytes, type), tokens * width, width};
    const ConstRows image{machine_.random(patch_bytes, type), patches * width, width};
    void* const statistics = machine_.random(statistics_bytes, DataType::kFloat32);

    SparsifyGroupForward forward;
    forward.problem = problem;
    forward.text_tokens = text;
    forward.image_tokens = image;
    forward.grouped = {machine_.random(token_bytes, type), tokens * width, width};
    forward.row_statistics = static_cast<float*>(statistics);
    forward.workspace = machine_.random(machine_.workspace(problem, Pass::kForward), DataType::kFloat32);
    SparsifyGroupBackward backward;
    backward.problem = problem;
    backward.text_tokens = text;
    backward.image_tokens = image;
    backward.grad_grouped = {machine_.random(token_bytes, type), tokens * width, width};
    backward.row_statistics = static_cast<const float*>(statistics);
    backward.grad_text_tokens = {machine_.random(token_bytes, type), tokens * width, width};
    backward.grad_image_tokens = {machine_.random(patch_bytes, type), patches * width, width};
    backward.workspace = machine_.random(machine_.workspace(problem, Pass::kBackward), DataType::kFloat32);

    const std::string shape = "B=" + std::to_string(batch) + " L=" + std::to_string(tokens) +
                              " P=" + std::to_string(patches) + " D=" + std::to_string(width);
    const double product = 2.0 * static_cast<double>(batch * tokens * patches * width);
    const double forward_bytes = 2.0 * token_bytes + patch_bytes + statistics_bytes;
    add(
        "sparsify_group forward", shape, type, [&] { return machine_.run(forward); }, 2.0 * product, forward_bytes);
    add(
        "sparsify_group backward", shape, type, [&] { return machine_.run(backward); }, 5.0 * product,
        3.0 * token_bytes + 2.0 * patch_bytes + statistics_bytes);
    machine_.release();
  }

  void flops_regularizer(std::int64_t rows, std::int64_t columns, DataType type) {
    const std::size_t bytes = rows * columns * size_of(type), column_bytes = columns * sizeof(float);
    const auto floats = [&](std::size_t size) {
      return static_cast<float*>(machine_.random(size, DataType::kFloat32));
    };
    void* const encoding = machine_.random(bytes, type);
    void* const gradient = machine_.random(bytes, type);
    float* const sum = floats(column_bytes);
    float* const mean = floats(column_bytes);
    float* const loss = floats(sizeof(float));
    void* const workspace = floats(machine_.workspace(rows, columns));
    const std::string shape = "N=" + std::to_string(rows) + " V=" + std::to_string(columns);
    const double values = static_cast<double>(rows * columns);
    add(
        "flops_regularizer forward", shape, type,
        [&] {
          const Status status = machine_.run(FlopsColumnSums{rows, columns, type, encoding, columns, sum, workspace});
          return status.ok() ? machine_.run(FlopsFromSums{rows, columns, sum, mean, loss, workspace}) : status;
        },
        values, static_cast<double>(bytes));
    add(
        "flops_regularizer backward", shape, type,
        [&] {
          return machine_.run(FlopsBackward{rows, rows, columns, type, mean, loss, gradient, columns});
        },
        values, static_cast<double>(bytes));
    machine_.release();
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  void add(const char* kernel, const std::string& shape, DataType type, const std::function<Status()>& call,
           double flops, double bytes) {
    const Row row{name_, kernel, shape, name_of(type), machine_.seconds(call), flops, bytes, copy_bandwidth_};
    std::printf("%-20s %-27s %-30s %-8s %9.3f ms %9.1f GFLOP/s %8.1f GB/s %5.1f%% of copy bandwidth\n",
                row.machine.c_str(), row.kernel.c_str(), row.shape.c_str(), row.type.c_str(), row.seconds * 1e3,
                row.flops / row.seconds * 1e-9, row.bytes / row.seconds * 1e-9,
                row.bytes / row.seconds / row.copy_bandwidth * 100.0);
    std::fflush(stdout);
    rows_.push_back(row);
  }

  Machine& machine_;
  std::string name_;
  double copy_bandwidth_;
  std::vector<Row> rows_;
};

nlohmann::json as_json(const std::vector<Row>& rows) {
  nlohmann::json result = nlohmann::json::array();
  for (const Row& row : rows) {
    result.push_back({{"machine", row.machine},
                      {"kernel", row.kernel},
                      {"shape", row.shape},
                      {"type", row.type},
                      {"seconds", row.seconds},
                      {"flops", row.flops},
                      {"bytes", row.bytes},
                      {"copy_bandwidth", row.copy_bandwidth}});
  }
  return result;
}

int run(int argc, char** argv) {
  CLI::App app{"Times the kernels: milliseconds, floating-point operations and least bytes moved per second"};
  std::string json;
  int threads = 0;
  bool skip_cpu = false;
  app.add_option("--json", json, "also write the measurements to this file");
  app.add_option("--threads", threads, "threads on the CPU; 0: all");
  app.add_flag("--gpu-only", skip_cpu, "leave the CPU out");
  CLI11_PARSE(app, argc, argv);

  std::vector<Row> rows;
  const auto keep = [&](const Bench& bench) { rows.insert(rows.end(), bench.rows().begin(), bench.rows().end()); };
  if (!skip_cpu) {
    const std::unique_ptr<Machine> cpu = cpu_machine(threads);
    Bench bench(*cpu);
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      bench.sparsify_group(64, 55, 196, 512, type);
      bench.flops_regularizer(512, 30522, type);
    }
    keep(bench);
  }
  if (const std::unique_ptr<Machine> gpu = gpu_machine()) {
    Bench bench(*gpu);
    for (const DataType type : {DataType::kBfloat16, DataType::kFloat32}) {
      for (const std::int64_t batch : {64, 1024}) bench.sparsify_group(batch, 55, 196, 512, type);
      bench.sparsify_group(1024, 55, 49, 512, type);
      bench.sparsify_group(256, 77, 256, 768, type);
      bench.sparsify_group(256, 55, 576, 512, type);
      for (const std::int64_t batch : {1024, 8192}) bench.flops_regularizer(batch, 30522, type);
    }
    keep(bench);
  } else {
    std::printf(skip_cpu ? "no GPU, and the CPU was left out: nothing measured\n" : "no GPU: measured the CPU alone\n");
    if (skip_cpu) return 1;
  }
  if (!json.empty()) std::ofstream(json) << as_json(rows).dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace tessera::kernels::bench

int main(int argc, char** argv) {
  return tessera::kernels::bench::run(argc, argv);
}
