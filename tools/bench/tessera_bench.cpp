#include <algorithm>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <limits>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>

#include "src/measure/machine.h"
#include "tools/bench/data_benchmarks.h"
#include "tools/bench/efficiency.h"
#include "tools/bench/kernel_bench.h"
#include "tools/bench/loss_bench.h"
#include "tools/bench/optimizer_bench.h"
#include "tools/bench/readout_bench.h"
#include "tools/bench/step_bench.h"
#include "tools/bench/tune.h"
#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace {

using tessera::bench::KernelBenchSettings;
using tessera::bench::LossBenchSettings;
using tessera::tools::add_default;
using tessera::tools::check_folder_of;

// The options that all subcommands of this file share.
struct Common {
  std::string device = "cpu", json;
  int threads = 0, repeats;
  double time_limit;
  bool quiet = false, on_demand = false;

  Common(int runs, double seconds) : repeats(runs), time_limit(seconds) {}

  void add_to(CLI::App& command) {
    command.option_defaults()->take_last();
    add_default(command, "--device", device, "auto, cpu, cuda or cuda:N");
    tessera::tools::add_threads(command, threads);
    add_default(command, "--repeats", repeats, "timed runs; their median is reported")
        ->check(CLI::Range(1, 100000));
    add_default(command, "--time-limit", time_limit, "seconds that one measurement may take")
        ->check(tessera::tools::positive_number());
    command.add_option("--json", json, "also write the measurements to this file")->type_name("FILE");
    command.add_flag("--quiet", quiet, "print no progress on standard error");
  }

  // Adds --on-demand, which measures once per line of standard input. A script can use it to alternate this program with another one.
  void add_turns_to(CLI::App& command) {
    command.add_flag(
        "--on-demand", on_demand,
        "for scripts: prepare the first one, then run it once per line of standard input and print its milliseconds");
  }

  at::Device checked_device() const {
    const at::Device chosen = tessera::parse_device(device);
    if (threads > 0) at::set_num_threads(threads);
    if (chosen.is_cuda()) at::accelerator::setDeviceIndex(chosen.index());  // kernels run on the current device
    return chosen;
  }

  // Passes the options to a benchmark's settings. Checks the path of the results before the measurement.
  template <class Settings>
  void apply_to(Settings& settings) const {
    check_folder_of("--json", json);
    settings.repeats = repeats;
    settings.time_limit = time_limit;
    if constexpr (requires { settings.progress; })
      if (!quiet) settings.progress = [](const std::string& line) { std::cerr << line << std::endl; };
  }

  template <class Bench>
  int report(const Bench& bench) const {
    std::cout << to_markdown(bench);
    if (!json.empty()) tessera::io::write_file(json, to_json(bench));
    return 0;
  }
};

at::ScalarType dtype_of(const std::string& name) {
  return name == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

// For each line of standard input, runs `step` and prints how long it took. If `released` is true, frees a GPU's cached memory after each
// line, and runs an untimed step, which allocates the memory again, before each timed step.
int take_turns(const at::Device& device, const std::function<void()>& step, bool released = false) {
  released = released && !device.is_cpu();
  for (std::string line; std::getline(std::cin, line);) {
    if (released) {
      step();
      tessera::synchronize(device);
    }
    const auto begin = std::chrono::steady_clock::now();
    step();
    tessera::synchronize(device);
    std::cout << std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count()
              << std::endl;
    if (released) at::accelerator::emptyCache();
  }
  return 0;
}

struct LossCommand {
  Common common{5, 60};
  std::vector<std::string> objectives = {"clip", "sparc", "filip", "pacl", "gloria", "mgca"};
  LossBenchSettings settings;
  std::string dtype = "float32", model, plot;
  double memory_limit = 0;

  void add_to(CLI::App& command) {
    settings.batch_sizes = {16, 32, 64, 128, 256, 512, 1024};
    add_default(command, "--objectives", objectives,
                "objectives: registered names, clip_filip (CLIP + FILIP), or YAML such as '{name: gloria, chunk: 16}'");
    add_default(command, "--batch-sizes", settings.batch_sizes, "pairs in one process")->check(CLI::Range(1, 1 << 24));
    add_default(command, "--patches", settings.patches, "P, patches per image")->check(CLI::Range(1, 1 << 20));
    add_default(command, "--captions", settings.captions, "K, captions per image for objectives that use several")
        ->check(CLI::Range(1, 1024));
    add_default(command, "--tokens", settings.tokens, "L, tokens per caption, without padding")
        ->check(CLI::Range(1, 1 << 20));
    add_default(command, "--width", settings.width, "D, width of the embeddings")->check(CLI::Range(1, 1 << 20));
    add_default(command, "--dtype", dtype, "type of the features; losses compute in float32")
        ->check(CLI::IsMember({"float32", "bfloat16"}));
    command
        .add_option(
            "--model", model,
            "configuration whose towers are measured too; adds tables of the whole update step, and P, L and D are the "
            "model's (bfloat16: under autocast)")
        ->type_name("FILE");
    command.add_option("--memory-limit", memory_limit, "GiB on the CPU; default: nine tenths of what is free")
        ->check(tessera::tools::positive_number());
    command.add_option("--plot", plot, "also write a page with charts of the measurements into this file")->type_name("FILE");
    common.add_to(command);
    common.add_turns_to(command);
    command.footer(
        "Features are random, and one process has the whole batch. FLOPs: 2 per multiply-add of matrix products,\n"
        "convolutions and attention. Peak memory: bytes of all tensors but the features, including their gradients.\n"
        "Sizes that do not fit are marked. The update step adds the towers' weights, gradients, AdamW moments and\n"
        "activations, measured with 1 and 2 pairs.\n\n"
        "  tessera-bench loss\n"
        "  tessera-bench loss --model configs/sparc/vitb16.yaml --plot loss.html --json loss.json\n"
        "  tessera-bench loss --objectives clip sparc '{name: gloria, chunk: 4}' --batch-sizes 64 --device cuda");
  }

  int run() {
    settings.device = common.checked_device();
    settings.dtype = dtype_of(dtype);
    common.apply_to(settings);
    std::sort(settings.batch_sizes.begin(), settings.batch_sizes.end());
    for (const std::string& text : objectives) settings.objectives.push_back(tessera::bench::parse_objective(text));
    if (common.on_demand)
      return take_turns(settings.device, loss_step(settings.objectives.at(0), settings.batch_sizes.at(0), settings));
    if (memory_limit > 0) {
      if (!settings.device.is_cpu())
        tessera::user_error("--memory-limit is for the CPU; a GPU's own memory is its limit");
      settings.memory_limit = static_cast<std::int64_t>(memory_limit * 1024 * 1024 * 1024);
    }
    if (!model.empty()) settings.model = tessera::bench::load_model_settings(model);
    check_folder_of("--plot", plot);
    if (plot.ends_with(".svg")) tessera::user_error("--plot ", plot, ": the plot is a page: name a file that ends in .html");
    const tessera::bench::LossBench bench = measure_losses(settings);
    if (!plot.empty()) tessera::io::write_file(plot, to_page(bench));
    return common.report(bench);
  }
};

// Makes glibc keep freed memory. By default, glibc returns large blocks to the operating system at once, so the operating system must clear
// new pages for every call of a compute kernel. Clearing takes longer than some of these kernels.
void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

struct KernelsCommand {
  Common common{9, 20};
  std::vector<std::string> groups, contrasts, encodings, similarities, slots, projections, cross_entropies, soft_cross_entropies, attentions, maps,
      updates,
      dtypes = {"float32", "bfloat16"};
  bool ceilings = false;

  void add_to(CLI::App& command) {
    command.add_option("--sparsify-group", groups, "shapes BxLxPxD (default 64x55x196x512; more on a GPU)")
        ->type_name("SHAPE");
    command.add_option("--token-contrast", contrasts, "shapes BxLxD (only on a GPU by default: 1024x55x512 and 1024x76x512)")
        ->type_name("SHAPE");
    command.add_option("--flops-regularizer", encodings, "shapes NxV (default 512x30522; more on a GPU)")
        ->type_name("SHAPE");
    command
        .add_option(
            "--max-similarity", similarities,
            "shapes BxLxPxD, B images with B texts (default 32x55x196x256; more on a GPU); float32 on the CPU")
        ->type_name("SHAPE");
    command
        .add_option(
            "--slot-attention", slots,
            "shapes BxLxNxdxD, L slots over N tokens of width d with keys of width D (default 32x128x50x768x64 and "
            "32x64x197x768x64)")
        ->type_name("SHAPE");
    command
        .add_option(
            "--token-max-projection", projections,
            "shapes BxNxVxw, N positions of width w with V tokens (default none; 256x196x30522x512 on a GPU); "
            "float32 on the CPU")
        ->type_name("SHAPE");
    command
        .add_option("--self-attention", attentions,
                    "shapes BxNxHxd, B sequences of N tokens with H heads of width d; compares each form of attention with LibTorch's "
                    "(default none; 512x197x12x64 and 512x77x8x64 on a GPU)")
        ->type_name("SHAPE");
    command
        .add_option(
            "--linear-cross-entropy", cross_entropies,
            "shapes TxVxD, T tokens of width D with V classes; the forward pass also computes the gradients (default "
            "none; 4096x49408x512 on a GPU); float32 on the CPU")
        ->type_name("SHAPE");
    command
        .add_option(
            "--linear-soft-cross-entropy", soft_cross_entropies,
            "shapes TxVxDxn, the same with n weighted classes per row (default none; 4096x49408x768x20 on a GPU); float32 "
            "on the CPU")
        ->type_name("SHAPE");
    command
        .add_option("--linear-map", maps,
                    "shapes TxIxO, T tokens mapped from width I to O with GELU, and back (default none; 100864x768x3072 on a GPU); "
                    "float32 on the CPU")
        ->type_name("SHAPE");
    command.add_option("--adamw", updates, "shapes TxN, the update of T tensors of N elements (default none; 300x500000 on a GPU); float32")
        ->type_name("SHAPE");
    add_default(command, "--dtypes", dtypes, "float32, bfloat16 or both")
        ->check(CLI::IsMember({"float32", "bfloat16"}));
    command.add_flag("--ceilings", ceilings, "measure only the machine's bandwidths and matrix products");
    common.add_to(command);
    command.footer(
        "Compares each pass of each kernel with the same pass composed of LibTorch's operators. Bandwidth counts the bytes\n"
        "that must at least be moved, relative to a triad over large arrays measured at the start; product peak is relative\n"
        "to a large matrix product, and roofline to the slower of these two. The process keeps freed memory. Peak memory is the memory of outputs and scratch; for\n"
        "backward passes it is counted from the start of the forward pass.\n\n"
        "  tessera-bench kernels\n"
        "  tessera-bench kernels --device cuda --json kernels.json\n"
        "  tessera-bench kernels --sparsify-group 16x55x49x512 --dtypes float32 --threads 1");
  }

  int run() {
    keep_freed_memory();
    KernelBenchSettings settings;
    settings.device = common.checked_device();
    common.apply_to(settings);
    settings.dtypes.clear();
    for (const std::string& name : dtypes) settings.dtypes.push_back(dtype_of(name));
    if (ceilings) return common.report(measure_kernels(settings));
    if (groups.empty() && contrasts.empty() && encodings.empty() && similarities.empty() && slots.empty() && projections.empty() &&
        cross_entropies.empty() && soft_cross_entropies.empty() && attentions.empty() && maps.empty() && updates.empty()) {
      groups = {"64x55x196x512"};
      encodings = {"512x30522"};
      similarities = {"32x55x196x256"};
      slots = {"32x128x50x768x64", "32x64x197x768x64"};
      if (!settings.device.is_cpu()) {
        groups.insert(groups.end(), {"1024x55x196x512", "1024x55x49x512", "256x77x256x768", "256x55x576x512"});
        contrasts = {"1024x55x512", "1024x76x512"};
        encodings = {"1024x30522", "8192x30522"};
        similarities.insert(similarities.end(), {"256x76x196x512", "1024x76x196x512"});
        slots.insert(slots.end(), {"1024x128x50x768x64", "1024x128x197x768x64"});
        projections = {"256x196x30522x512"};
        cross_entropies = {"4096x49408x512"};
        soft_cross_entropies = {"4096x49408x768x20"};
        attentions = {"512x197x12x64", "512x77x8x64"};
        maps = {"100864x768x3072"};
        updates = {"300x500000"};
      }
    }
    for (const std::string& shape : groups) settings.groups.push_back(tessera::bench::parse_group_shape(shape));
    for (const std::string& shape : attentions) settings.attentions.push_back(tessera::bench::parse_attention_shape(shape));
    for (const std::string& shape : contrasts) settings.contrasts.push_back(tessera::bench::parse_contrast_shape(shape));
    for (const std::string& shape : encodings)
      settings.encodings.push_back(tessera::bench::parse_encoding_shape(shape));
    for (const std::string& shape : similarities)
      settings.similarities.push_back(tessera::bench::parse_group_shape(shape, "--max-similarity"));
    for (const std::string& shape : slots) settings.slots.push_back(tessera::bench::parse_slot_shape(shape));
    for (const std::string& shape : projections)
      settings.projections.push_back(tessera::bench::parse_projection_shape(shape));
    for (const std::string& shape : cross_entropies)
      settings.cross_entropies.push_back(tessera::bench::parse_cross_entropy_shape(shape));
    for (const std::string& shape : soft_cross_entropies)
      settings.cross_entropies.push_back(tessera::bench::parse_soft_cross_entropy_shape(shape));
    for (const std::string& shape : maps) settings.maps.push_back(tessera::bench::parse_map_shape(shape));
    for (const std::string& shape : updates) settings.updates.push_back(tessera::bench::parse_update_shape(shape));
    return common.report(measure_kernels(settings));
  }
};

struct OptimizerCommand {
  Common common{9, 20};
  std::vector<std::string> optimizers = {"adamw", "lamb", "sgd"};
  std::string model = "configs/openclip/vitb32.yaml";

  void add_to(CLI::App& command) {
    add_default(command, "--optimizers", optimizers,
                "optimizers: registered names, or YAML such as '{name: adamw, betas: [0.9, 0.95]}'");
    add_default(command, "--model", model, "configuration of the model whose parameters are updated")->type_name("FILE");
    common.add_to(command);
    common.add_turns_to(command);
    command.footer(
        "Gradients are random; weights and gradients are float32. --on-demand first prints the parameters as JSON.\n\n"
        "  tessera-bench optimizer --model configs/openclip/vitb32.yaml\n"
        "  tessera-bench optimizer --optimizers '{name: adamw, update_clipping: true}' --device cuda");
  }

  int run() {
    tessera::bench::OptimizerBenchSettings settings;
    settings.device = common.checked_device();
    common.apply_to(settings);
    for (const std::string& text : optimizers) settings.optimizers.push_back(tessera::bench::parse_optimizer(text));
    settings.model = tessera::bench::load_model_settings(model);
    if (common.on_demand) {
      tessera::bench::OptimizerStep step(settings.model, settings.optimizers.at(0), settings.device);
      std::cout << tessera::bench::parameters_json(step.optimizer()) << std::endl;
      return take_turns(settings.device, [&] { step.run(); });
    }
    return common.report(measure_optimizers(settings));
  }
};

struct ReadoutsCommand {
  Common common{9, 20};
  std::vector<std::string> readouts = {"{name: sparo, slots: 64}", "{name: sparo, slots: 128}", "attentional_pool",
                                       "gap"};
  std::vector<std::string> shapes = {"32x50x768", "32x197x768", "32x77x512"};
  std::string dtype = "float32";

  void add_to(CLI::App& command) {
    add_default(command, "--readouts", readouts, "read-outs: registered names, or YAML such as '{name: sparo, slots: 128}'");
    add_default(command, "--shapes", shapes,
                "shapes BxNxd: batch, tokens and their width; the defaults are ViT-B/32, ViT-B/16 and CLIP's text tower")
        ->type_name("SHAPE");
    add_default(command, "--dtype", dtype, "float32, or bfloat16 under autocast")
        ->check(CLI::IsMember({"float32", "bfloat16"}));
    common.add_to(command);
    command.footer(
        "Measures the forward and backward pass of each read-out, and of a transformer block with heads of width 64, on\n"
        "random tokens. FLOPs are counted as in `loss`. Peak memory is the memory of activations and gradients.\n\n"
        "  tessera-bench readouts\n"
        "  tessera-bench readouts --shapes 256x197x768 --dtype bfloat16 --device cuda");
  }

  int run() {
    keep_freed_memory();
    tessera::bench::ReadoutBenchSettings settings;
    settings.device = common.checked_device();
    settings.dtype = dtype_of(dtype);
    common.apply_to(settings);
    for (const std::string& text : readouts) settings.readouts.push_back(tessera::bench::parse_readout(text));
    for (const std::string& shape : shapes) settings.shapes.push_back(tessera::bench::parse_token_shape(shape));
    return common.report(measure_readouts(settings));
  }
};

struct StepCommand {
  Common common{9, 60};
  tessera::bench::StepBenchSettings settings;
  std::string dtype = "float32";
  bool on_demand = false, forward = false;

  void add_to(CLI::App& command) {
    command.add_option("configurations", settings.configurations, "configurations of the trainer, names or files")->required();
    add_default(command, "--batch-size", settings.step.batch_size, "pairs")->check(CLI::Range(1, 1 << 20));
    add_default(command, "--dtype", dtype, "float32, or bfloat16 under autocast")
        ->check(CLI::IsMember({"float32", "bfloat16"}));
    add_default(command, "--caption-lengths", settings.step.caption_lengths,
                "tokens per caption: full (the model's context), coco (lengths drawn as in COCO), 12 or 9:20");
    command.add_flag("--phases", settings.phases,
                     "time of each phase: towers, objective, backward, clipping, update, and the extra time for reducing gradients");
    add_default(command, "--operators", settings.operators,
                "list this many of the slowest operators (on a GPU: kernels)")
        ->check(CLI::Range(0, 1000));
    command.add_option("--trace", settings.trace, "also write a trace of one step to this file, in Chrome's trace format")
        ->type_name("FILE");
    command.add_flag("--recorded", settings.recorded, "also measure forward and backward pass as a CUDA graph");
    add_default(command, "--backend", settings.step.backend,
                "backend that reduces the gradients although there is only one rank: gloo or nccl; auto: no reduction")
        ->check(CLI::IsMember({"auto", "gloo", "nccl"}));
    command.add_option("--weights", settings.step.weights, "start from the weights in this safetensors file with OpenCLIP's names")
        ->type_name("FILE");
    command.add_option("--batch", settings.step.batch, "use the batch in this safetensors file: tensors image, text and lengths")
        ->type_name("FILE");
    command.add_flag("--on-demand", on_demand,
                     "for scripts: print the first loss, then run a step for each line of standard input and print its "
                     "milliseconds");
    command.add_flag("--forward", forward, "with --on-demand: embed the images without gradients instead of a step");
    common.add_to(command);
    command.footer(
        "Measures towers, loss, backward pass, clipping and update on a batch of random images and texts that is already in\n"
        "memory. A configuration with several views of an image or a text is measured twice: with views of one shape as one\n"
        "larger batch, as in the trainer, and one by one. Peak memory excludes weights, optimizer state and batch. If only a\n"
        "tokenizer's file has the size of the vocabulary, the text encoder's default is used.\n\n"
        "  tessera-bench step openclip_vitb32 --batch-size 32 --caption-lengths coco --phases\n"
        "  tessera-bench step openclip_vitb32 pyramidclip_15m_vitb32 --batch-size 16");
  }

  int run() {
    keep_freed_memory();
    settings.step.device = common.checked_device();
    settings.step.dtype = dtype_of(dtype);
    if (on_demand) {
      if (settings.configurations.size() != 1) tessera::user_error("--on-demand takes one configuration");
      if (forward) return take_turns(settings.step.device, tessera::bench::image_forward(settings.configurations[0], settings.step));
      tessera::bench::TrainingStep step(settings.configurations[0], settings.step);
      std::cout << std::setprecision(9) << step.run().item<double>() << std::endl;
      if (!settings.step.device.is_cpu()) at::accelerator::emptyCache();  // the programs compared with this one need the memory
      return take_turns(settings.step.device, [&] { settings.recorded ? step.run_recorded() : step.run(); },
                        /*released=*/true);
    }
    common.apply_to(settings);
    return common.report(measure_steps(settings));
  }
};

struct EfficiencyCommand {
  Common common{5, 30};
  tessera::bench::EfficiencySettings settings;
  std::string dtype = "float32";

  void add_to(CLI::App& command) {
    command.add_option("configurations", settings.configurations, "configurations of the trainer, names or files")->required();
    add_default(command, "--batch-size,--batch", settings.step.batch_size, "samples per batch")
        ->check(CLI::Range(1, 1 << 20));
    add_default(command, "--dtype", dtype, "float32, or bfloat16 under autocast")
        ->check(CLI::IsMember({"float32", "bfloat16"}));
    add_default(command, "--caption-lengths", settings.step.caption_lengths,
                "tokens per caption: full (the model's context), coco (lengths drawn as in COCO), 12 or 9:20");
    command.add_flag("!--no-training", settings.training, "measure only the towers, without a training step");
    common.add_to(command);
    command.footer(
        "Prints one table of models: parameters; FLOPs, speed and memory of embedding images and texts, one tower at a time\n"
        "and without gradients; and the same for a training step (towers, loss, backward pass, update). Images and texts are\n"
        "random. If only a tokenizer's file has the size of the vocabulary, the text encoder's default is used.\n\n"
        "  tessera-bench efficiency clip_vitb32 sparc_vitb32 filip_vitb32 --batch 16\n"
        "  tessera-bench efficiency configs/shapes/*.yaml --no-training --json efficiency.json");
  }

  int run() {
    keep_freed_memory();
    settings.step.device = common.checked_device();
    settings.step.dtype = dtype_of(dtype);
    common.apply_to(settings);
    return common.report(measure_efficiency(settings));
  }
};

struct TuneCommand {
  Common common{9, 1};
  std::vector<std::string> operators;

  void add_to(CLI::App& command) {
    command.add_option("--operators", operators, "measure only these operators (default: all that have configurations)");
    common.add_to(command);
    command.footer(
        "Runs each configuration of the operators that have several, compares its results with float64, and measures it.\n"
        "The file of --json is a table of the fastest ones. Programs read it if TESSERA_TUNING names it, or if it ships with\n"
        "Tessera (share/tessera/tuning). Exit code 1: the results of a configuration were wrong.\n\n"
        "  tessera-bench tune --device cuda --json tuning.json");
  }

  int run() {
    tessera::bench::TuneSettings settings;
    settings.device = at::hasCUDA() ? common.checked_device() : at::Device(at::kCPU);
    settings.operators = operators;
    common.apply_to(settings);
    const tessera::bench::TuneBench bench = measure_tuning(settings);
    common.report(bench);
    return bench.any_wrong() ? 1 : 0;
  }
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Measures the cost of training steps, losses, kernels, read-outs, optimizers, tokenizers, data loading and retrieval.",
      "tessera-bench");
  app.require_subcommand(1);
  app.footer("Exit codes: 0 measured; 1 internal error; 2 a mistake in the arguments (one line says which).");
  LossCommand loss;
  KernelsCommand kernels;
  OptimizerCommand optimizer;
  ReadoutsCommand readouts;
  StepCommand step;
  EfficiencyCommand efficiency;
  TuneCommand tune;
  CLI::App& loss_app = *app.add_subcommand("loss", "FLOPs, peak memory and time of each objective by batch size");
  CLI::App& kernels_app = *app.add_subcommand("kernels", "each kernel compared with composed LibTorch operators");
  CLI::App& optimizer_app = *app.add_subcommand("optimizer", "one update of a model's parameters");
  CLI::App& readouts_app =
      *app.add_subcommand("readouts", "read-outs compared with the transformer block that they may replace");
  CLI::App& step_app = *app.add_subcommand("step", "one training step: towers, loss, backward pass, update");
  loss.add_to(loss_app);
  kernels.add_to(kernels_app);
  optimizer.add_to(optimizer_app);
  readouts.add_to(readouts_app);
  step.add_to(step_app);
  CLI::App& efficiency_app =
      *app.add_subcommand("efficiency", "parameters, FLOPs, peak memory and samples per second of models side by side");
  efficiency.add_to(efficiency_app);
  CLI::App& tune_app = *app.add_subcommand("tune", "writes the table of the fastest GPU kernels of each operator");
  tune.add_to(tune_app);
  CLI::App& retrieval_app = *app.add_subcommand("retrieval", "recalls of many images and captions: time and peak memory");
  const std::function<int()> run_retrieval = tessera::tools::add_retrieval_benchmark(retrieval_app);
#ifdef TESSERA_WITH_DATA
  CLI::App& tokenizer_app = *app.add_subcommand("tokenizer", "captions per second of each tokenizer");
  const std::function<int()> run_tokenizers = tessera::tools::add_tokenizer_benchmark(tokenizer_app);
  CLI::App& data_app =
      *app.add_subcommand("data", "images per second: reading, decoding, transforms, the whole loader");
  const std::function<int()> run_data = tessera::tools::add_data_benchmark(data_app);
#endif
  if (const auto code = tessera::tools::parse_arguments(app, argc, argv)) return *code;
  return tessera::run_program("tessera-bench", [&] {
#ifdef TESSERA_WITH_DATA
    if (tokenizer_app.parsed()) return run_tokenizers();
    if (data_app.parsed()) return run_data();
#endif
    if (retrieval_app.parsed()) return run_retrieval();
    if (loss_app.parsed()) return loss.run();
    if (readouts_app.parsed()) return readouts.run();
    if (step_app.parsed()) return step.run();
    if (efficiency_app.parsed()) return efficiency.run();
    if (tune_app.parsed()) return tune.run();
    return kernels_app.parsed() ? kernels.run() : optimizer.run();
  });
}
