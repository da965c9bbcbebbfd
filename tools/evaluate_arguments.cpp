#include "tools/evaluate_arguments.h"

#include "tools/command_line.h"
#include "tools/front_end.h"

namespace tessera::tools {

std::optional<int> parse(int argc, char** argv, EvaluateOptions& options) {
  CLI::App app{"Evaluates a model and writes results.json and report.html (one self-contained page with pictures)."};
  app.add_option("--checkpoint", options.checkpoint,
                 "model file, checkpoint folder, or run folder (its latest checkpoint); or a checkpoint of OpenCLIP's: a file "
                 "(.safetensors, .pt, .bin) or a folder");
  app.add_option("--architecture", options.architecture,
                 "OpenCLIP's name of the checkpoint's model (ViT-B-32), where no open_clip_config.json lies beside it");
  app.add_option("--compare", options.compare,
                 "two or more of these: each is measured on the same tasks and data, and one page and table show them side by "
                 "side. Results of the same settings are taken as they are, unless --overwrite is given")
      ->type_name("MODEL");
  app.add_option("--suite", options.suite, "YAML file with a list of tasks; configs/suites has some");
  app.add_option("--task", options.task,
                 "one task: zero_shot, retrieval, k_precision, segmentation, linear_probe, segmentation_probe, depth_probe, knn, hard_negatives, fgovd, options, slot_mask, "
                 "slots, interpretability, tokens, token_group_iou, query, grad_cam, feature_map, validation_loss, captions or referring. "
                 "Without --suite and --task: the tasks of the run's own configuration");
  app.add_option("--query", options.queries,
                 "show the pictures of the data that are nearest to this text; may come several times. Without --suite and "
                 "--task nothing else is measured")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option(
      "--data", options.data,
      "data of tasks that name none: shapes, a folder, a .tar, .tar.gz or .csv file, or {name: SOURCE, ...}. Default: the "
      "run's validation data");
  app.add_option("--train-data", options.train_data,
                 "the same for what linear_probe, knn and slot_mask learn from. Default: the run's training data");
  app.add_option(
      "--slots", options.slots,
      "measure with some slots of a sparo model: top:32 (the best by zero-shot accuracy of each alone, on the "
      "run's validation data), {top: 32, source: {name: SOURCE, ...}, templates: FILE}, a slots.json that an "
      "earlier evaluation wrote, or the slot_mask.safetensors of slot_mask");
  app.add_option("--features-cache", options.features_cache,
                 "folder that embeddings of pictures and texts are kept in, by the model's and the pictures' fingerprints: "
                 "another evaluation of the same model takes them from there. Default: none is kept on disk");
  add_overrides(app, "--set", options.overrides,
                "override a key of the suite (tasks.0.topk=[1]) or, with --task or --query alone, of the task (topk=[1])");
  app.add_option("--out", options.out,
                 "folder for results.json and report.html. Default: evaluation in the run's folder; where that holds "
                 "results already, evaluation-2, evaluation-3, ... With --compare: the page, or a folder for it (default: "
                 "comparison.html)");
  app.add_flag("--overwrite", options.overwrite, "write over the results that the folder holds");
  add_default(app, "--device", options.device, "auto, cpu, cuda or cuda:N");
  app.add_option("--nproc", options.processes,
                 "embed in so many processes on this machine (GPUs: one each), which share pictures and texts; the first one "
                 "measures. torchrun's variables do the same on several machines")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  add_threads(app, options.threads);
  app.add_flag("--json", options.json, "print the results as JSON");
  app.add_flag("!--no-pictures", options.pictures, "leave the pictures out of the report");
  app.footer(
      "A task that fails is named at the end, with exit code 2; the results of the others are written all the same.\n"
      "\nExamples:\n"
      "  evaluate --checkpoint runs/shapes_sparc --suite configs/suites/shapes.yaml\n"
      "  evaluate --checkpoint model.safetensors --task zero_shot --data photos/ --set "
      "templates=configs/templates/cifar10.txt\n"
      "  evaluate --checkpoint runs/shapes_sparc --query 'a red circle' --query 'a blue square'\n"
      "  evaluate --compare runs/shapes_clip runs/shapes_sparc --suite configs/suites/shapes.yaml --out comparison.html");
  return parse_arguments(app, argc, argv, [&] {
    if (options.checkpoint.empty() && options.compare.empty()) throw CLI::RequiredError("--checkpoint or --compare");
  });
}

}  // namespace tessera::tools
