#include "apps/flags/convert_flags.h"

#include <iterator>
#include <string>
#include <vector>

#include "apps/flags/option_values.h"
#include "models/catalog.h"

namespace titan {
namespace {

constexpr const char* kConvertHelp =
    R"(Copies a model between checkpoint formats, in one process and in little memory: tensors pass through block by block.
  dcp      a step folder, ours, TorchTitan's or any DCP folder: parameters under our names
  hf       a folder of Hugging Face safetensors with index and config.json, for transformers
  torch    one file for torch.load(weights_only=True): a dict of our names -> tensors
Only the model is copied: no optimizer, no step. To and from hf the parameters' names change, and the rows of wq and wk
their order; the shape of the model for that comes from SOURCE (its titan.config.toml or config.json). Other programs'
checkpoints have none: --config or --model-flavor says it, or the config.toml two folders above step-N. A folder of hf
gets the run's tokenizer too, from model.hf_assets_path as the run had it, or from --tokenizer.)";

constexpr const char* kFooter =
    R"(Examples:
  titan-train convert outputs/checkpoint/step-1000 llama-hf --export-dtype bfloat16
  titan-train convert Llama-3.1-8B llama-dcp          # then --checkpoint.initial_load_path llama-dcp
  titan-train convert outputs/checkpoint/step-1000 model.pt
Exit codes: 0 done, 1 a source that cannot be read or does not fit, 2 wrong command line.)";

}  // namespace

void declare(CLI::App& app, ConvertFlags& flags) {
  app.name("titan-train convert");
  app.description(kConvertHelp);
  app.footer(kFooter);
  app.add_option("SOURCE", flags.source,
                 "what to read; its format is seen from its files. Of a run, or a folder of its steps, the newest step")
      ->required();
  app.add_option("TARGET", flags.target, "the folder or file to write")->required();
  suggest(
      app.add_option("--to", flags.to,
                     "hf, dcp or torch (default: torch for *.pt and *.pth, else hf from dcp, and dcp from the others)")
          ->type_name("FORMAT"),
      {"hf", "dcp", "torch"});
  app.add_option("--export-dtype", flags.dtype, "dtype of floating-point tensors; same: as they are stored")
      ->capture_default_str()
      ->check(CLI::IsMember({"same", "float32", "float16", "bfloat16"}));
  app.add_option(
         "--names", flags.names,
         "names of the parameters in a dcp or torch target: TorchTitan 0.2.2's, which are ours, or those of its "
         "main branch (attention.qkv_linear, lm_head). A source may have either")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kNames), std::end(kNames))));
  app.add_option("--config", flags.config, "job.toml that describes the model ([model])")->type_name("FILE");
  suggest(app.add_option("--model-flavor", flags.model_flavor, "size of the model, instead of a configuration")
              ->type_name("FLAVOR"),
          models::flavor_names());
  suggest(app.add_option("--model-name", flags.model_name, "model that the flavor is of")->capture_default_str(),
          models::model_names());
  app.add_option("--tokenizer", flags.tokenizer, "tokenizer to copy beside the weights of hf (default: the run's)")
      ->type_name("PATH");
  app.add_flag("--merge", flags.merge,
               "add the adapters of a run with [lora] to its weights, and write the model; without it, hf gets the "
               "adapters alone, in PEFT's format");
  app.add_flag("--allow-overflow", flags.may_overflow,
               "write infinities where the dtype cannot hold a number; without it that is an error");
  app.add_flag("--overwrite", flags.overwrite, "replace TARGET when it exists, once the new one is complete");
}

}  // namespace titan
