// Compares with the reference cases of tests/data/golden, read without LibTorch.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "tests/kernels/sparsify_group_case.h"
#include "tests/support/test_data.h"

namespace tessera::kernels::test {
namespace {

struct Case {
  nlohmann::json settings;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::map<std::string, std::vector<float>> values;        // float32 tensors
  std::map<std::string, std::vector<std::uint8_t>> bytes;  // bool tensors
};

Case read_case(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, content.data(), sizeof(header_size));
  const nlohmann::json header = nlohmann::json::parse(content.substr(8, header_size));
  Case result;
  result.settings = nlohmann::json::parse(header["__metadata__"]["settings"].get<std::string>());
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    result.shapes[name] = tensor["shape"].get<std::vector<std::int64_t>>();
    const std::size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    const char* const data = content.data() + 8 + header_size;
    if (tensor["dtype"] == "F32") {
      std::vector<float>& values = result.values[name];
      values.resize((end - begin) / sizeof(float));
      std::memcpy(values.data(), data + begin, end - begin);
    } else {
      result.bytes[name].assign(data + begin, data + end);
    }
  }
  return result;
}

std::vector<double> wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

std::vector<std::filesystem::path> cases(const std::string& folder, const std::string& prefix) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(test_data("golden/" + folder))) {
    if (entry.path().filename().string().rfind(prefix, 0) == 0) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  Backend on = backend(GetParam());
};
INSTANTIATE_TEST_SUITE_P(On, Golden, testing::ValuesIn(backend_names()), [](const auto& each) { return each.param; });

TEST_P(Golden, SparsifyGroupAgrees) {
  const auto paths = cases("sparc", "sparsify_group_");
  ASSERT_FALSE(paths.empty());
  for (const auto& path : paths) {
    SCOPED_TRACE(path.filename().string());
    const Case reference = read_case(path);
    const auto& text_shape = reference.shapes.at("in.text_tokens");
    SparsifyGroupInputs inputs;
    SparsifyGroupProblem& problem = inputs.problem;
    problem.batch = text_shape[0];
    problem.tokens = text_shape[1];
    problem.width = text_shape[2];
    problem.patches = reference.shapes.at("in.image_tokens")[1];
    const nlohmann::json& settings = reference.settings;
    const nlohmann::json threshold = settings.value("threshold", nlohmann::json());
    problem.threshold = !settings.value("sparsify", true) ? 0.0f
                        : threshold.is_null()             ? paper_threshold(problem.patches)
                                                          : threshold.get<float>();
    problem.weights = settings.value("weights", "minmax") == "softmax" ? PatchWeights::kSoftmax : PatchWeights::kMinMax;
    problem.softmax_temperature = settings.value("softmax_temperature", 1.0f);
    inputs.text = reference.values.at("in.text_tokens");
    inputs.image = reference.values.at("in.image_tokens");
    inputs.grad = reference.values.at("cotangent.grouped");
    inputs.mask = reference.bytes.at("in.text_mask");
    const SparsifyGroupResults ours = run(on, inputs);
    expect_close("grouped", ours.grouped, wide(reference.values.at("out.grouped")), 1e-5);
    expect_close("weights", ours.weights, wide(reference.values.at("out.weights")), 1e-5);
    expect_close("grad_text", ours.grad_text, wide(reference.values.at("grad.in.text_tokens")), 1e-5);
    expect_close("grad_image", ours.grad_image, wide(reference.values.at("grad.in.image_tokens")), 1e-5);
  }
}

TEST_P(Golden, FlopsRegularizerAgrees) {
  const auto paths = cases("stair", "flops_");
  ASSERT_FALSE(paths.empty());
  for (const auto& path : paths) {
    SCOPED_TRACE(path.filename().string());
    const Case reference = read_case(path);
    const std::int64_t rows = reference.shapes.at("in.encoding")[0], columns = reference.shapes.at("in.encoding")[1];
    const auto per_rank = reference.settings.value("rows_per_rank", std::vector<std::int64_t>{rows});
    const auto floats = [&](std::vector<float> values) { return on.allocate(to_bytes(values, DataType::kFloat32)); };
    const auto pointer = [](Buffer& buffer) { return static_cast<float*>(buffer.data()); };
    const auto read = [](Buffer& buffer) { return from_bytes(buffer.read(), DataType::kFloat32); };
    auto encoding = floats(reference.values.at("in.encoding")),
         gradient = floats(std::vector<float>(rows * columns, NAN));
    auto mean = floats(std::vector<float>(columns)), loss = floats({NAN}), one = floats({1.0f});
    auto workspace = on.allocate(std::vector<unsigned char>(on.flops_workspace(rows, columns)));
    std::vector<float> total(columns), rank_sums;
    std::int64_t first = 0;
    for (const std::int64_t count : per_rank) {
      auto sum = floats(std::vector<float>(columns, NAN));
      ASSERT_TRUE(on.flops_column_sums({count, columns, DataType::kFloat32, pointer(*encoding) + first * columns,
                                        columns, pointer(*sum), workspace->data()})
                      .ok());
      for (const float value : read(*sum)) {
        total[rank_sums.size() % columns] += value;
        rank_sums.push_back(value);
      }
      first += count;
    }
    auto sum = floats(total);
    ASSERT_TRUE(
        on.flops_from_sums({rows, columns, pointer(*sum), pointer(*mean), pointer(*loss), workspace->data()}).ok());
    ASSERT_TRUE(on.flops_backward({rows, rows, columns, DataType::kFloat32, pointer(*mean), pointer(*one),
                                   gradient->data(), columns})
                    .ok());
    expect_close("loss", read(*loss), wide(reference.values.at("out.loss")), 1e-5);
    expect_close("column_mean", read(*mean), wide(reference.values.at("out.column_mean")), 1e-5);
    expect_close("grad.in.encoding", read(*gradient), wide(reference.values.at("grad.in.encoding")), 1e-5);
    if (reference.values.count("out.rank_column_sum") != 0) {
      expect_close("rank_column_sum", rank_sums, wide(reference.values.at("out.rank_column_sum")), 1e-5);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::test
