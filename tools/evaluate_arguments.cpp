#include "tools/evaluate_arguments.h"

#include "tools/checkpoint_arguments.h"
#include <tessera/config/shipped.h>

namespace tessera::tools {

std::optional<int> parse(int argc, char** argv, EvaluateOptions& options) {
  CLI::App app{"Evaluates a model and writes results.json and report.html (one self-contained page with images)."};
  app.add_option("--checkpoint", options.checkpoint,
                 "model file, checkpoint folder, or run folder (its latest checkpoint); or an OpenCLIP checkpoint: a file "
                 "(.safetensors, .pt, .bin) or a folder");
  add_checkpoint_options(app, options.reading);
  app.add_option("--compare", options.compare,
                 "two or more models: each is evaluated on the same tasks and data, and one page and table show them side by "
                 "side. Results that exist for the same settings are reused, unless --overwrite is given")
      ->type_name("MODEL");
  app.add_option("--suite", options.suite,
                 "YAML file with a list of tasks or data sets, or the name of one in " + config::shipped_folder() +
                     "/suites; datacomp measures DataComp's 40 data sets, whose folders are in --data");
  app.add_option("--task", options.task,
                 "one task: zero_shot, retrieval, k_precision, segmentation, linear_probe, segmentation_probe, "
                 "depth_probe, knn, hard_negatives, fgovd, options, slot_mask, "
                 "slots, interpretability, tokens, token_group_iou, words, query, grad_cam, feature_map, "
                 "validation_loss, captions, referring, "
                 "winogavil or faces. "
                 "Default without --suite: the tasks of the run's own configuration");
  app.add_option("--query", options.queries,
                 "show the images of the data that are nearest to this text; may be repeated. Without --suite and "
                 "--task nothing else is evaluated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option(
      "--data", options.data,
      "data for tasks that do not name their own: shapes, a folder, a .tar, .tar.gz or .csv file, or {name: SOURCE, ...}. "
      "Default: the run's validation data");
  app.add_option("--train-data", options.train_data,
                 "the same for the data that linear_probe, knn, slot_mask, segmentation_probe and depth_probe learn from. "
                 "Default: the run's training data");
  app.add_option(
      "--slots", options.slots,
      "evaluate with some slots of a sparo model: top:32 (those with the best zero-shot accuracy on their own, on the "
      "run's validation data), {top: 32, source: {name: SOURCE, ...}, templates: FILE}, a slots.json that an "
      "earlier evaluation wrote, or the slot_mask.safetensors of slot_mask");
  app.add_option("--features-cache", options.features_cache,
                 "folder in which embeddings of images and texts are stored, by the fingerprints of model and data, so that "
                 "later evaluations of the same model read them from there. Default: embeddings are not stored");
  add_overrides(app, "--set", options.overrides,
                "override a key of the suite (tasks.0.topk=[1]) or, with --task or only --query, of the task (topk=[1])");
  app.add_option("--out", options.out,
                 "folder for results.json and report.html. Default: evaluation in the run's folder or, if that holds "
                 "results already, evaluation-2, evaluation-3, ... With --compare: the page, or a folder for it (default: "
                 "comparison.html)");
  app.add_flag("--overwrite", options.overwrite, "overwrite results that the folder holds");
  add_default(app, "--device", options.device, "auto, cpu, cuda or cuda:N");
  app.add_option("--nproc", options.processes,
                 "embed in this many processes on this machine (one GPU each), which share images and texts; the first one "
                 "computes the metrics. torchrun's variables do the same on several machines")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  add_threads(app, options.threads);
  app.add_flag("--json", options.json, "print the results as JSON");
  app.add_flag("!--no-pictures", options.images, "write the report without images");
  app.footer(
      "If a task fails, the results of the others are still written; the failed task is named at the end, with exit code 2.\n"
      "\nExamples:\n"
      "  evaluate --checkpoint runs/shapes_sparc --suite configs/suites/shapes.yaml\n"
      "  evaluate --checkpoint model.safetensors --task zero_shot --data photos/ --set "
      "templates=configs/templates/cifar10.txt\n"
      "  evaluate --checkpoint runs/shapes_sparc --query 'a red circle' --query 'a blue square'\n"
      "  evaluate --checkpoint runs/clip --suite datacomp --data /data/datacomp_eval\n"
      "  evaluate --compare runs/shapes_clip runs/shapes_sparc --suite configs/suites/shapes.yaml --out comparison.html");
  return parse_arguments(app, argc, argv, [&] {
    if (options.checkpoint.empty() && options.compare.empty()) throw CLI::RequiredError("--checkpoint or --compare");
  });
}

}  // namespace tessera::tools
