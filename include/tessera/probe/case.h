#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <tessera/config/node.h>

namespace tessera::probe {

/// One reference case: what a module gets, and what an independent implementation made of it. Read from a
/// `.safetensors` file (tensors `in.`, `param.`, `out.`, `cotangent.`, `grad.in.`, `grad.param.`; metadata `module`,
/// `settings`, `note`, `rtol`) or a `.json` file (`module`, `settings`, `note`, `rtol`, `inputs`, `outputs`).
struct Case {
  std::string path;
  std::string module;
  config::Node settings = config::Node::map();
  std::string note;
  double rtol = 1e-5;
  bool float32_only = false;  // numbers that bfloat16 cannot hold

  std::map<std::string, at::Tensor> inputs;
  std::map<std::string, at::Tensor> parameters;
  std::map<std::string, at::Tensor> outputs;
  std::map<std::string, at::Tensor> cotangents;
  std::map<std::string, at::Tensor> input_gradients;
  std::map<std::string, at::Tensor> parameter_gradients;

  nlohmann::json json_inputs;  // of a `.json` case, as written; numbers and even arrays of them are in `inputs` too

  bool differentiated() const { return !input_gradients.empty() || !parameter_gradients.empty(); }
};

/// Reads a case. Throws UserError naming the file: not readable, no module, malformed settings, tensors without a known
/// prefix.
Case load_case(const std::string& path);

/// Texts as whole numbers that compare as equal where the texts are equal as bytes: [N, longest], a byte each, behind a
/// text's end -1. Outputs of `.json` cases that are lists of texts are held so.
at::Tensor tensor_of_texts(const std::vector<std::string>& texts);

/// The objects of a `.jsonl` file, one a line. Throws UserError naming file and line.
std::vector<nlohmann::json> load_json_lines(const std::string& path);

/// The case files (`.safetensors`, `.json`, `.jsonl`) of a folder, sorted; a path that is no folder stands for itself.
std::vector<std::string> case_files(const std::string& path);

}  // namespace tessera::probe
