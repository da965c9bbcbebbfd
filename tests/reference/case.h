#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <tessera/config/node.h>

namespace tessera::probe {

/// A reference case: the inputs of a module, and the outputs of an independent implementation. It is read from a `.safetensors`
/// file (tensors whose names begin with `in.`, `param.`, `out.`, `cotangent.`, `grad.in.` or `grad.param.`; metadata `module`, `settings`,
/// `note`, `rtol`) or a `.json` file (keys `module`, `settings`, `note`, `rtol`, `inputs`, `outputs`).
struct Case {
  std::string path;
  std::string module;
  config::Node settings = config::Node::map();
  std::string note;
  double rtol = 1e-5;
  bool float32_only = false;  // whether the case has numbers that bfloat16 cannot represent

  std::map<std::string, at::Tensor> inputs;
  std::map<std::string, at::Tensor> parameters;
  std::map<std::string, at::Tensor> outputs;
  std::map<std::string, at::Tensor> cotangents;
  std::map<std::string, at::Tensor> input_gradients;
  std::map<std::string, at::Tensor> parameter_gradients;

  nlohmann::json json_inputs;  // the inputs of a `.json` case; numbers and rectangular arrays of numbers are also in `inputs`

  bool differentiated() const { return !input_gradients.empty() || !parameter_gradients.empty(); }
};

/// Reads a case. Throws UserError naming the file if it cannot be read, names no module, has malformed settings, or has tensors
/// without a known prefix.
Case load_case(const std::string& path);

/// Encodes texts as a tensor of their bytes, [N, longest] int64, padded with -1, so that equal texts have equal rows. If an output of a
/// `.json` case is a list of texts, it is stored in this form.
at::Tensor tensor_of_texts(const std::vector<std::string>& texts);

/// Reads the objects of a `.jsonl` file, one per line. Throws UserError naming file and line.
std::vector<nlohmann::json> load_json_lines(const std::string& path);

/// Returns the case files (`.safetensors`, `.json`, `.jsonl`) of a folder, sorted, or the path itself if it is not a folder.
std::vector<std::string> case_files(const std::string& path);

}  // namespace tessera::probe
