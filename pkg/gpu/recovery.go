package gpu

// RecoveryAction describes an action that a GPU requests.
type RecoveryAction struct {
	Observed, Hint  string // texts of the check before a job starts
	Meaning, Action string // texts for a running job
	JobEffect       Effect // the effect on a running job
}

// RecoveryActions maps the values of nvmlDeviceGpuRecoveryAction_t, except 0 (none), to their
// descriptions. No new job may start on a GPU that requests any of them.
//
// Which actions can wait for the end of the job follows from NVIDIA's documentation (nvidia-smi's
// manual, "GPU Recovery Action"). With 1 all processes must be terminated, and with 2 no
// application can be started again. With 3 applications should be stopped "when convenient"; DCGM
// also only warns. With 4 existing work that was not affected may continue. With 5 the driver
// refuses new memory of the fabric, and itself ends the processes that have imported some
// (open-gpu-kernel-modules, imex_session_api.c). Drivers have 5 since version 575, but DCGM's range
// check drops it. 6 and 7 come with NVML 615 and are documented by their names only; they are
// handled like 1 and 2.
var RecoveryActions = map[int]RecoveryAction{
	1: {"reset the GPU", "drain the node and reset the GPU (nvidia-smi --gpu-reset)",
		"the GPU asks to be reset", "drain the node, and reset the GPU", EffectFatal},
	2: {"reboot the node", "drain and reboot the node",
		"the GPU asks for a reboot of the node", "drain the node, and reboot it", EffectFatal},
	3: {"end all work that reaches it from other GPUs", "drain the node, and end what runs on all of its GPUs: they reach this one",
		"the GPU asks that all traffic from other GPUs ends", "drain the node, and end what uses the GPU over NVLink when convenient", EffectWarn},
	4: {"end all work that reaches it, and reset it", "drain the node, end what runs on all of its GPUs, and reset this one (nvidia-smi --gpu-reset)",
		"the GPU asks to be drained and reset", "drain the node, and reset the GPU when the job has ended", EffectWarn},
	5: {"recover the IMEX domain", "restart nvidia-imex on all nodes of the NVLink domain",
		"the GPU asks for a recovery of its IMEX domain", "drain the node, and recover the IMEX domain: see nvidia-imex-ctl", EffectWarn},
	6: {"reset its PCIe bus", "drain the node, and reset the GPU's PCIe bus, or reboot the node",
		"the GPU asks for a reset of its PCIe bus", "drain the node, and reset the GPU's PCIe bus, or reboot the node", EffectFatal},
	7: {"reboot the system", "drain and reboot the node",
		"the GPU asks for a reboot of the system", "drain the node, and reboot it", EffectFatal},
}
