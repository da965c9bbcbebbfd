#include <cmath>
#include <filesystem>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#ifdef TESSERA_WITH_DATA
#include <tessera/data/tokenizers/tokenizer.h>
#endif
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/architectures.h>
#include <tessera/models/groupvit_checkpoint.h>
#include <tessera/models/model_file.h>
#include <tessera/models/open_clip.h>
#include <tessera/models/parameter_count.h>
#include <tessera/models/readouts/sparo.h>

namespace {

using namespace tessera;

struct Arguments {
  std::string from = "tessera";
  std::string to = "tessera";
  std::string architecture;
  std::string settings;
  std::string merges;
  std::string input;
  std::string output;
  bool list = false;
  std::optional<int> threads;
};

ModelSettings wanted_model(const Arguments& arguments) {
  if (arguments.from == "groupvit") {
    if (!arguments.architecture.empty())
      user_error("--architecture ", arguments.architecture,
                 " is one of OpenCLIP's: leave it out for GroupViT's released model, or give --settings FILE");
    if (arguments.settings.empty()) return groupvit_model();
  } else if (!arguments.architecture.empty() && !arguments.settings.empty()) {
    user_error("give either --architecture NAME or --settings FILE for an OpenCLIP file, not both");
  }
  if (arguments.settings.empty()) return open_clip_settings(arguments.input, arguments.architecture);
  const config::Node tree = config::load_yaml(arguments.settings);
  const config::Node* model = tree.find("model");
  return resolve(config::read<ModelSettings>(model != nullptr ? *model : tree, "model"));
}

/// The vocabulary's bytes, which the model's tokenizer has been made of once.
std::string read_merges(const std::string& path, [[maybe_unused]] config::ModuleSettings tokenizer) {
#ifdef TESSERA_WITH_DATA
  tokenizer.settings.set("merges", config::Node::scalar(path));
  try {
    tokenizers().make(tokenizer, "--merges", TokenizerContext{});
  } catch (const UserError& error) {
    user_error("--merges: ", error.what());
  }
#endif
  return io::read_file(path);
}

/// A file as it should be: only the tensors of the model, under our names, resampled to its size.
ModelFile from_others(const Arguments& arguments) {
  const ModelSettings model = wanted_model(arguments);
  ModelFile file = arguments.from == "groupvit"
                       ? from_named_tensors(from_groupvit(load_weights(arguments.input), arguments.input), model, arguments.input)
                       : from_open_clip(find_open_clip_weights(arguments.input), model);
  if (!arguments.merges.empty()) file.vocabulary = read_merges(arguments.merges, file.tokenizer);
  return file;
}

/// What OpenCLIP has no counterpart for.
void check_open_clip_can_hold(const ModelFile& file, const std::string& path) {
  for (const auto& [name, tensor] : file.weights) {
    bool foreign = name.find(".mlp.dwconv.") != std::string::npos;
    for (const char* part : {"readout.", "adaptor.", "global_head.", "head.", "patch_embed.", "group_tokens"})
      foreign |= name.starts_with(part) || name.starts_with(std::string("visual.") + part);
    if (foreign)
      user_error(path, ": OpenCLIP has no counterpart of ", name,
                 "; only towers with its own blocks and read-outs and linear projections can be converted; "
                 "python/tessera_model.py reads the others, in plain PyTorch");
  }
}

/// What region features alone pass, of which inference makes no use.
bool is_of_regions(const ModelFile& file, const std::string& name) {
  return name.starts_with("visual.roi_") ||
         (file.model.image.encoder.name == "modified_resnet" && name.starts_with("visual.ln_pre."));
}

std::map<std::string, at::Tensor> to_open_clip(const ModelFile& file, const std::string& path) {
  check_open_clip_can_hold(file, path);
  std::map<std::string, at::Tensor> weights;
  std::vector<std::string> left_out;
  for (const auto& [name, tensor] : file.weights) {
    if (name.starts_with("objective.")) continue;
    if (is_of_regions(file, name))
      left_out.push_back(name);
    else
      weights.emplace(name, tensor);
  }
  if (!left_out.empty())
    std::cout << "left out, for OpenCLIP's models take no region features: " << join_names(left_out) << std::endl;
  weights.emplace("logit_scale",
                  at::tensor(std::log(1 / 0.07), at::kFloat));  // where the file has none: CLIP's start value
  add_value_copies(weights);
  return weights;
}

/// The file for OpenCLIP, and beside it the configuration that it is built by.
void write_open_clip(ModelFile& file, const std::string& input, const std::string& output) {
  namespace fs = std::filesystem;
  const bool sparo = is_sparo(file.model);
  const std::string configuration = sparo ? "" : open_clip_config(file, input);
  file.weights = to_open_clip(file, input);
  io::save_safetensors(output, file.weights, {{"format", "pt"}});
  if (sparo) {
    std::cout << "no open_clip_config.json: the file is for SPARO's code; python/tessera_model.py reads the model, too\n";
    return;
  }
  const fs::path folder = fs::absolute(output).parent_path();
  io::write_file((folder / "open_clip_config.json").string(), configuration);
  std::cout << "open_clip.create_model_and_transforms('local-dir:" << folder.string()
            << "') loads it: open_clip_config.json lies beside it\n";
  if (!file.tokenizer.name.empty() && file.tokenizer.name != "clip-bpe")
    std::cout << "its tokenizer " << file.tokenizer.name << " is not part of it: give OpenCLIP's model ids of that one\n";
}

/// What is written is safetensors, and never over what is read: better said before the reading.
void check_output(const std::string& input, const std::string& output) {
  std::error_code unknown;
  if (std::filesystem::equivalent(input, output, unknown))
    user_error(output, ": is the file to be read itself: name another one to write");
  if (!output.ends_with(".safetensors"))
    user_error(output, ": what is written is safetensors: name a file that ends in .safetensors");
  tools::check_folder_of("output", output);
}

int run(const Arguments& arguments) {
  if (arguments.list) {
    for (const std::string& name : architecture_names()) std::cout << name << "\n";
    return 0;
  }
  if (arguments.from == arguments.to)
    user_error("nothing to do: give --from open_clip, --from groupvit or --to open_clip");
  if (arguments.from != "tessera" && arguments.to != "tessera")
    user_error("--from ", arguments.from, " --to ", arguments.to, ": convert in two steps, through a file of ours");
  if (arguments.threads) at::set_num_threads(*arguments.threads);
  const at::NoGradGuard guard;
  ModelFile file;
  if (arguments.from != "tessera") {
    check_output(find_open_clip_weights(arguments.input), arguments.output);
    file = from_others(arguments);
    save_model_file(arguments.output, file);
  } else {
    const std::string input = find_model_file(arguments.input);
    check_output(input, arguments.output);
    file = load_model_file(input);
    write_open_clip(file, input, arguments.output);
  }
  std::cout << arguments.output << ": parameters " << describe(count_parameters(DualEncoder(file.model))) << "; "
            << file.weights.size() << " tensors" << std::endl;
  if (arguments.from != "tessera" && file.vocabulary.empty())
    std::cout << "no vocabulary: programs that read text will ask for the tokenizer's file (--merges)" << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Converts model files from and to OpenCLIP's, those of SPARO's code, which is made of OpenCLIP's, and from "
      "checkpoints of GroupViT's code. It reads safetensors and PyTorch files (.pt, .pth, .bin) and writes "
      "safetensors.\n"
      "  tessera-convert --from open_clip --architecture ViT-B-32 IN OUT\n"
      "  tessera-convert --from open_clip --settings configs/sparo_laion400m_vitb32.yaml IN OUT\n"
      "  tessera-convert --from groupvit IN OUT\n"
      "  tessera-convert --to open_clip RUN_OR_FILE OUT");
  Arguments arguments;
  const CLI::IsMember inputs({"tessera", "open_clip", "groupvit"}), outputs({"tessera", "open_clip"});
  app.add_option("input", arguments.input, "file to read (a run or checkpoint folder for a model of ours)");
  app.add_option("output", arguments.output, "file to write");
  tools::add_default(app, "--from", arguments.from, "format of the input")->check(inputs);
  tools::add_default(app, "--to", arguments.to, "format of the output")->check(outputs);
  app.add_option("--architecture", arguments.architecture, "OpenCLIP's name of the model (--list shows those known). Default: what open_clip_config.json beside it says");
  app.add_option("--settings", arguments.settings,
                 "YAML with the model's settings instead (at the top, or under `model:`)");
  app.add_option("--merges", arguments.merges, "vocabulary of the tokenizer clip-bpe, to be carried in the model file. Default: CLIP's");
  app.add_flag("--list", arguments.list, "print the known architectures");
  tools::add_threads(app, arguments.threads);
  const auto check = [&] {
    if (!arguments.list && arguments.output.empty()) throw CLI::RequiredError("input and output");
  };
  if (const auto code = tools::parse_arguments(app, argc, argv, check)) return *code;
  return run_program("tessera-convert", [&] { return run(arguments); });
}
