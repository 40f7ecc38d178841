package roles

// pals is mpiexec or aprun of HPE's PALS, also under PBS. Only PMI's variable has the number of
// ranks.
var pals = starter{
	title: "PALS", mark: "PALS_RANKID",
	names: rankNames{
		rank: []string{"PALS_RANKID"}, ranks: []string{"PMI_SIZE"},
		local: []string{"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"}, locals: []string{"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"},
		node: []string{"PALS_NODEID"},
	},
	servesPMI: true,
	private:   []string{"PALS_", "ALPS_APP_"},
}

// jsrun is jsrun of IBM's job step manager, under LSF.
var jsrun = starter{
	title: "jsrun", mark: "JSM_NAMESPACE_RANK",
	names: rankNames{
		rank: []string{"JSM_NAMESPACE_RANK"}, ranks: []string{"JSM_NAMESPACE_SIZE"},
		local: []string{"JSM_NAMESPACE_LOCAL_RANK"}, locals: []string{"JSM_NAMESPACE_LOCAL_SIZE"},
	},
	private: []string{"JSM_NAMESPACE_"},
}
