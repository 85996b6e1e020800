//! Images that the portal knows by name: the frameworks of NVIDIA's registry, Jupyter's images, and frameworks that are
//! no longer developed, for old models and papers. They are references only. Nothing is pulled before an administrator
//! adds one, and what a tag names is the registry's to say.

/// An image that can be added by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suggestion {
    pub name: &'static str,
    pub title: &'static str,
    pub reference: &'static str,
    /// No longer developed: without updates, and with libraries that recent GPUs may not support.
    pub is_legacy: bool,
    /// Whose terms apply.
    pub licence: &'static str,
}

const NVIDIA: &str = "NVIDIA's terms for its containers apply; some need an API key";
const JUPYTER: &str = "BSD licence, and those of the packages inside";

const fn current(
    name: &'static str,
    title: &'static str,
    reference: &'static str,
    licence: &'static str,
) -> Suggestion {
    Suggestion { name, title, reference, is_legacy: false, licence }
}

const fn legacy(name: &'static str, title: &'static str, reference: &'static str) -> Suggestion {
    Suggestion { name, title, reference, is_legacy: true, licence: NVIDIA }
}

/// All suggestions, the current ones first.
pub const SUGGESTIONS: [Suggestion; 17] = [
    current("pytorch", "PyTorch", "nvcr.io/nvidia/pytorch:25.04-py3", NVIDIA),
    current("tensorflow", "TensorFlow", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3", NVIDIA),
    current("jax", "JAX", "nvcr.io/nvidia/jax:25.04-py3", NVIDIA),
    current("cuda", "CUDA with compilers", "nvcr.io/nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04", NVIDIA),
    current("triton", "Triton Inference Server", "nvcr.io/nvidia/tritonserver:25.12-py3", NVIDIA),
    current("jupyter-base", "JupyterLab", "quay.io/jupyter/base-notebook:latest", JUPYTER),
    current("jupyter-scipy", "JupyterLab with SciPy", "quay.io/jupyter/scipy-notebook:latest", JUPYTER),
    current("jupyter-pytorch", "JupyterLab with PyTorch", "quay.io/jupyter/pytorch-notebook:latest", JUPYTER),
    current("jupyter-tensorflow", "JupyterLab with TensorFlow", "quay.io/jupyter/tensorflow-notebook:latest", JUPYTER),
    legacy("caffe", "NVCaffe", "nvcr.io/nvidia/caffe:20.03-py3"),
    legacy("caffe2", "Caffe2", "nvcr.io/nvidia/caffe2:18.08-py3"),
    legacy("cntk", "Microsoft Cognitive Toolkit", "nvcr.io/nvidia/cntk:18.08-py3"),
    legacy("digits", "DIGITS", "nvcr.io/nvidia/digits:20.11-tensorflow-py3"),
    legacy("mxnet", "MXNet", "nvcr.io/nvidia/mxnet:22.04-py3"),
    legacy("theano", "Theano", "nvcr.io/nvidia/theano:18.08"),
    legacy("torch", "Torch7", "nvcr.io/nvidia/torch:18.08-py2"),
    legacy("tensorflow1", "TensorFlow 1", "nvcr.io/nvidia/tensorflow:21.02-tf1-py3"),
];

/// Returns the suggestion with this name.
#[must_use]
pub fn suggestion(name: &str) -> Option<&'static Suggestion> {
    SUGGESTIONS.iter().find(|one| one.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::{Source, config::is_name};

    #[test]
    fn each_can_be_added() {
        for (index, one) in SUGGESTIONS.iter().enumerate() {
            assert!(is_name(one.name) && !one.title.is_empty() && !one.licence.is_empty(), "{one:?}");
            let source: Source = one.reference.parse().unwrap();
            assert_eq!(source.to_string(), one.reference, "written in full");
            assert!(!SUGGESTIONS[..index].iter().any(|other| other.name == one.name), "{one:?}");
        }
        assert!(suggestion("pytorch").is_some_and(|one| !one.is_legacy) && suggestion("none").is_none());
    }
}
