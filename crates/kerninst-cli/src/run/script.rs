//! From source text to a checked script, with errors as a compiler shows them.

use std::io::Read;

use kerninst_kernel::Kernel;
use kerninst_lang::hir::{Script, Span};
use kerninst_lang::{Diagnostic, Options, ast, check_all, parse, world};

use super::args::RunArgs;
use crate::Fail;
use crate::ui::Ui;

/// The source of a script.
pub(super) struct Source {
    /// Its text.
    pub text: String,
    /// What it is called in messages.
    pub name: String,
    /// What `$1` and so on stand for.
    pub params: Vec<String>,
}

impl Source {
    /// As the arguments say.
    pub(super) fn of(args: &RunArgs) -> Result<Source, Fail> {
        if let Some(text) = &args.e {
            return Ok(Source {
                text: text.clone(),
                name: "-e".into(),
                params: args.rest.clone(),
            });
        }
        let Some((file, params)) = args.rest.split_first() else {
            return Err(Fail::error(
                "no script: give one with -e 'entry:vfs_read { @ = count(); }', or a file's name",
            ));
        };
        let mut bytes = Vec::new();
        // More than that is no script, and /dev/zero has no end.
        let most = kerninst_lang::MAX_SOURCE as u64 + 1;
        let read = match file.as_str() {
            "-" => std::io::stdin().take(most).read_to_end(&mut bytes),
            file => std::fs::File::open(file).and_then(|f| f.take(most).read_to_end(&mut bytes)),
        };
        read.map_err(|e| {
            // As with bpftrace's `-e` left out.
            let help = match file.contains('{') {
                true => ": a script that is no file goes after -e",
                false => "",
            };
            Fail::Error(format!("cannot read {file}: {e}{help}"))
        })?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Fail::Error(format!("{file} is not text (UTF-8)")))?;
        Ok(Source {
            text,
            name: file.clone(),
            params: params.to_vec(),
        })
    }

    /// Shows what is wrong.
    pub(super) fn show(&self, diagnostics: &[Diagnostic], ui: &mut Ui) {
        let colour = ui.err_paint.0;
        for d in diagnostics {
            let text = d.render(&self.text, &self.name, colour);
            ui.note(text.trim_end());
        }
    }

    /// The failure of a script with these errors, which are shown.
    pub(super) fn fail(&self, diagnostics: &[Diagnostic], ui: &mut Ui) -> Fail {
        self.show(diagnostics, ui);
        let errors = diagnostics.iter().filter(|d| !d.warning).count();
        Fail::Error(match errors {
            1 => "the script has an error; nothing was armed".into(),
            n => format!("the script has {n} errors; nothing was armed"),
        })
    }

    /// The failure of a script that is wrong at a place.
    pub(super) fn fail_at(&self, span: Span, message: &str, ui: &mut Ui) -> Fail {
        self.fail(&[Diagnostic::error(span, message)], ui)
    }

    /// Its syntax tree.
    pub(super) fn parse(&self, ui: &mut Ui) -> Result<ast::Script, Fail> {
        parse(&self.text).map_err(|d| self.fail(&d, ui))
    }

    /// Checks it, whose tree this is, against a kernel.
    pub(super) fn check(
        &self,
        tree: &ast::Script,
        kernel: &Kernel,
        args: &RunArgs,
        ui: &mut Ui,
    ) -> Result<Script, Fail> {
        let Some(types) = kernel.btf() else {
            return Err(Fail::error(
                "this kernel has no BTF (/sys/kernel/btf/vmlinux), which scripts need",
            ));
        };
        let options = Options {
            allow_unsafe: args.allow_unsafe,
            params: self.params.clone(),
        };
        let (script, diagnostics) = check_all(tree, types, &options);
        let Some(script) = script else {
            return Err(self.fail(&diagnostics, ui));
        };
        self.show(&diagnostics, ui);
        for clause in &script.clauses {
            if let Err((span, why)) = world::allowed(clause) {
                return Err(self.fail_at(span, &why, ui));
            }
        }
        Ok(script)
    }
}
