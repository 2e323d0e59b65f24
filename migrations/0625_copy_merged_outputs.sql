-- Copies the output of the chosen arm to merges that have succeeded.
create function pipeline.copy_merged_outputs_v1(p_ended pipeline.ended_step[]) returns void
language plpgsql as $$
begin
    update pipeline.steps s set output = value.output, output_bytes = value.output_bytes
    from unnest(p_ended) as e
    join pipeline.nodes n on n.graph = e.graph and n.no = e.no and n.kind = 'merge'
    join pipeline.steps branch on branch.run = e.run and branch.no = n.branch
    join pipeline.steps value on value.run = e.run and value.no = n.returns[branch.arm + 1]
    where e.status = 'succeeded' and s.run = e.run and s.no = e.no;
end $$;
