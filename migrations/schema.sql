-- Made from the numbered files by: go run ./migrations/dump -write

CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  raise exception 'the audit record is append-only' using errcode = 'insufficient_privilege';
end $$;

CREATE TABLE public.acknowledgements (
    integration text NOT NULL,
    signal text NOT NULL,
    upto bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    by text NOT NULL,
    note text DEFAULT ''::text NOT NULL
);

CREATE TABLE public.agent_tokens (
    token_hash bytea NOT NULL,
    integration text NOT NULL,
    agent text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    created_by text NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT agent_tokens_token_hash_check CHECK ((octet_length(token_hash) = 32))
);

CREATE TABLE public.audit_links (
    pos bigint NOT NULL,
    record_id bigint NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT audit_links_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT audit_links_pos_check CHECK ((pos >= 1))
);

CREATE TABLE public.audit_records (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor_kind text NOT NULL,
    actor text NOT NULL,
    integration text DEFAULT ''::text NOT NULL,
    action text NOT NULL,
    object text DEFAULT ''::text NOT NULL,
    detail bytea NOT NULL,
    CONSTRAINT audit_records_actor_kind_check CHECK ((actor_kind = ANY (ARRAY['person'::text, 'agent'::text, 'job'::text])))
);

ALTER TABLE public.audit_records ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_records_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.counters (
    integration text NOT NULL,
    bucket timestamp with time zone NOT NULL,
    name text NOT NULL,
    shard smallint NOT NULL,
    n bigint NOT NULL
);

CREATE TABLE public.decisions (
    id bigint NOT NULL,
    integration text NOT NULL,
    at timestamp with time zone NOT NULL,
    kind text NOT NULL,
    mode text NOT NULL,
    decision text NOT NULL,
    reason text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    enforced boolean NOT NULL,
    account text NOT NULL,
    event_id text NOT NULL,
    effect text DEFAULT ''::text NOT NULL,
    run text DEFAULT ''::text NOT NULL,
    agent text DEFAULT ''::text NOT NULL,
    key bytea,
    mutation_id bigint,
    delivery_id bigint,
    CONSTRAINT decisions_check CHECK (((kind = 'mutation'::text) = (mutation_id IS NOT NULL))),
    CONSTRAINT decisions_check1 CHECK (((kind = 'delivery'::text) = (delivery_id IS NOT NULL))),
    CONSTRAINT decisions_decision_check CHECK ((decision = ANY (ARRAY['drop'::text, 'quarantine'::text]))),
    CONSTRAINT decisions_kind_check CHECK ((kind = ANY (ARRAY['delivery'::text, 'mutation'::text]))),
    CONSTRAINT decisions_mode_check CHECK ((mode = ANY (ARRAY['shadow'::text, 'enforce'::text, 'off'::text]))),
    CONSTRAINT decisions_reason_check CHECK ((reason <> ''::text))
);

ALTER TABLE public.decisions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.decisions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.deliveries (
    id bigint NOT NULL,
    integration text NOT NULL,
    event_seq bigint,
    received_at timestamp with time zone NOT NULL,
    payload bytea NOT NULL,
    payload_hash bytea NOT NULL,
    mode text NOT NULL,
    disposition text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    handed_on boolean NOT NULL,
    CONSTRAINT deliveries_disposition_check CHECK ((disposition = ANY (ARRAY['stored'::text, 'duplicate'::text, 'quarantined'::text]))),
    CONSTRAINT deliveries_mode_check CHECK ((mode = ANY (ARRAY['off'::text, 'shadow'::text, 'enforce'::text]))),
    CONSTRAINT deliveries_payload_hash_check CHECK ((octet_length(payload_hash) = 32))
);

ALTER TABLE public.deliveries ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.deliveries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.entities (
    integration text NOT NULL,
    type text NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    target_version bigint DEFAULT 0 NOT NULL,
    state bytea NOT NULL,
    deleted boolean DEFAULT false NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    last_mutation bigint,
    updated_at timestamp with time zone NOT NULL
);

CREATE TABLE public.events (
    seq bigint NOT NULL,
    integration text NOT NULL,
    account text NOT NULL,
    event_id text NOT NULL,
    kind text DEFAULT ''::text NOT NULL,
    occurred_at timestamp with time zone,
    occurred_raw text DEFAULT ''::text NOT NULL,
    received_at timestamp with time zone NOT NULL,
    fingerprint bytea,
    payload bytea,
    state text NOT NULL,
    run text,
    claimed_at timestamp with time zone,
    closed_at timestamp with time zone,
    rollback_id bigint,
    CONSTRAINT events_check CHECK (((run IS NULL) = (claimed_at IS NULL))),
    CONSTRAINT events_check1 CHECK (((closed_at IS NULL) OR (run IS NOT NULL))),
    CONSTRAINT events_fingerprint_check CHECK (((fingerprint IS NULL) OR (octet_length(fingerprint) = 32))),
    CONSTRAINT events_state_check CHECK ((state = ANY (ARRAY['known'::text, 'stored'::text, 'applied'::text, 'quarantined'::text, 'rejected'::text])))
);

ALTER TABLE public.events ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.hash_pairs (
    id bigint NOT NULL,
    integration text NOT NULL,
    first_mutation bigint NOT NULL,
    second_mutation bigint NOT NULL,
    fingerprint bytea NOT NULL,
    subject text NOT NULL,
    found_at timestamp with time zone NOT NULL,
    state text NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    decided_at timestamp with time zone,
    decided_by text,
    note text DEFAULT ''::text NOT NULL,
    rollback_id bigint,
    CONSTRAINT hash_pairs_check CHECK ((first_mutation < second_mutation)),
    CONSTRAINT hash_pairs_check1 CHECK (((decided_at IS NULL) = (decided_by IS NULL))),
    CONSTRAINT hash_pairs_check2 CHECK (((state = 'open'::text) = (decided_at IS NULL))),
    CONSTRAINT hash_pairs_state_check CHECK ((state = ANY (ARRAY['open'::text, 'duplicate'::text, 'distinct'::text, 'undone'::text])))
);

ALTER TABLE public.hash_pairs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.hash_pairs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.integrations (
    id text NOT NULL,
    name text NOT NULL,
    mode text NOT NULL,
    frozen boolean DEFAULT false NOT NULL,
    max_skew interval NOT NULL,
    pairs_until bigint DEFAULT 0 NOT NULL,
    pairs_at timestamp with time zone,
    version bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    updated_by text NOT NULL,
    CONSTRAINT integrations_id_check CHECK ((id ~ '^[a-z][a-z0-9_-]{0,62}$'::text)),
    CONSTRAINT integrations_mode_check CHECK ((mode = ANY (ARRAY['off'::text, 'shadow'::text, 'enforce'::text])))
);

CREATE TABLE public.mutations (
    id bigint NOT NULL,
    integration text NOT NULL,
    natural_key bytea,
    account text NOT NULL,
    event_id text NOT NULL,
    effect text NOT NULL,
    occurred_raw text DEFAULT ''::text NOT NULL,
    agent text NOT NULL,
    run text NOT NULL,
    op text NOT NULL,
    entity_type text NOT NULL,
    entity_id text DEFAULT ''::text NOT NULL,
    subject text NOT NULL,
    body bytea NOT NULL,
    fingerprint bytea NOT NULL,
    basis jsonb,
    evidence jsonb,
    rollback_id bigint,
    rollback_row integer,
    received_at timestamp with time zone NOT NULL,
    mode text NOT NULL,
    decision text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    forwarded boolean NOT NULL,
    CONSTRAINT mutations_check CHECK (((decision = 'forward'::text) OR (reason <> ''::text))),
    CONSTRAINT mutations_check1 CHECK (((rollback_id IS NULL) = (rollback_row IS NULL))),
    CONSTRAINT mutations_decision_check CHECK ((decision = ANY (ARRAY['forward'::text, 'drop'::text, 'quarantine'::text]))),
    CONSTRAINT mutations_fingerprint_check CHECK ((octet_length(fingerprint) = 32)),
    CONSTRAINT mutations_mode_check CHECK ((mode = ANY (ARRAY['off'::text, 'shadow'::text, 'enforce'::text]))),
    CONSTRAINT mutations_natural_key_check CHECK ((octet_length(natural_key) = 32)),
    CONSTRAINT mutations_op_check CHECK ((op = ANY (ARRAY['create'::text, 'update'::text, 'delete'::text])))
);

ALTER TABLE public.mutations ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.mutations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.quarantine_items (
    id bigint NOT NULL,
    integration text NOT NULL,
    kind text NOT NULL,
    mutation_id bigint,
    delivery_id bigint,
    reason text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    event_id text DEFAULT ''::text NOT NULL,
    entity_id text DEFAULT ''::text NOT NULL,
    twin_mutation bigint,
    rollback_id bigint,
    fingerprint bytea,
    state text NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    decided_at timestamp with time zone,
    decided_by text,
    note text DEFAULT ''::text NOT NULL,
    release_at timestamp with time zone,
    entity_version bigint,
    claimed_until timestamp with time zone,
    released_mutation bigint,
    outcome text DEFAULT ''::text NOT NULL,
    CONSTRAINT quarantine_items_check CHECK (((decided_at IS NULL) = (decided_by IS NULL))),
    CONSTRAINT quarantine_items_check1 CHECK (((state = 'open'::text) = (decided_at IS NULL))),
    CONSTRAINT quarantine_items_check2 CHECK (((state <> 'releasing'::text) OR (release_at IS NOT NULL))),
    CONSTRAINT quarantine_items_check3 CHECK (((claimed_until IS NULL) OR (state <> 'open'::text))),
    CONSTRAINT quarantine_items_check4 CHECK (((kind = 'mutation'::text) = (mutation_id IS NOT NULL))),
    CONSTRAINT quarantine_items_check5 CHECK (((kind = 'delivery'::text) = (delivery_id IS NOT NULL))),
    CONSTRAINT quarantine_items_kind_check CHECK ((kind = ANY (ARRAY['delivery'::text, 'mutation'::text]))),
    CONSTRAINT quarantine_items_state_check CHECK ((state = ANY (ARRAY['open'::text, 'releasing'::text, 'released'::text, 'rejected'::text, 'superseded'::text])))
);

ALTER TABLE public.quarantine_items ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.quarantine_items_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.reservations (
    key bytea NOT NULL,
    integration text NOT NULL,
    natural_key bytea NOT NULL,
    mutation_id bigint NOT NULL,
    state text NOT NULL,
    attempt integer NOT NULL,
    fence bigint NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    reserved_at timestamp with time zone NOT NULL,
    settled_at timestamp with time zone,
    settled_by text,
    external_ref text DEFAULT ''::text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    last_look_at timestamp with time zone,
    CONSTRAINT reservations_attempt_check CHECK ((attempt >= 1)),
    CONSTRAINT reservations_check CHECK (((settled_at IS NULL) = (settled_by IS NULL))),
    CONSTRAINT reservations_check1 CHECK (((state = ANY (ARRAY['in_flight'::text, 'unknown'::text, 'manual'::text])) = (settled_at IS NULL))),
    CONSTRAINT reservations_fence_check CHECK ((fence >= 1)),
    CONSTRAINT reservations_key_check CHECK ((octet_length(key) = 32)),
    CONSTRAINT reservations_natural_key_check CHECK ((octet_length(natural_key) = 32)),
    CONSTRAINT reservations_state_check CHECK ((state = ANY (ARRAY['in_flight'::text, 'committed'::text, 'refused'::text, 'unknown'::text, 'manual'::text, 'rolled_back'::text])))
);

CREATE TABLE public.rollback_rows (
    rollback_id bigint NOT NULL,
    "row" integer NOT NULL,
    kind text NOT NULL,
    group_key text NOT NULL,
    op text NOT NULL,
    entity_type text NOT NULL,
    entity_id text NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    body bytea NOT NULL,
    base bytea,
    expected bytea,
    live bytea,
    live_version bigint NOT NULL,
    live_by text DEFAULT ''::text NOT NULL,
    live_at timestamp with time zone,
    choice text NOT NULL,
    undoes bigint[] NOT NULL,
    contaminated bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    state text NOT NULL,
    mutation_id bigint,
    detail text DEFAULT ''::text NOT NULL,
    done_at timestamp with time zone,
    CONSTRAINT rollback_rows_choice_check CHECK ((choice = ANY (ARRAY['restore'::text, 'keep'::text]))),
    CONSTRAINT rollback_rows_kind_check CHECK ((kind = ANY (ARRAY['compensation'::text, 'decision'::text, 'outside'::text, 'residue'::text]))),
    CONSTRAINT rollback_rows_op_check CHECK ((op = ANY (ARRAY['create'::text, 'update'::text, 'delete'::text, 'none'::text]))),
    CONSTRAINT rollback_rows_row_check CHECK (("row" >= 1)),
    CONSTRAINT rollback_rows_state_check CHECK ((state = ANY (ARRAY['planned'::text, 'sending'::text, 'applied'::text, 'verified'::text, 'failed'::text, 'skipped'::text])))
);

CREATE TABLE public.rollback_suspects (
    rollback_id bigint NOT NULL,
    mutation_id bigint NOT NULL,
    pair_id bigint,
    source text NOT NULL,
    CONSTRAINT rollback_suspects_source_check CHECK ((source = ANY (ARRAY['pair'::text, 'range'::text, 'run'::text, 'selection'::text])))
);

CREATE TABLE public.rollbacks (
    id bigint NOT NULL,
    integration text NOT NULL,
    snapshot_seq bigint NOT NULL,
    state text NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    hash bytea,
    created_at timestamp with time zone NOT NULL,
    created_by text NOT NULL,
    planned_at timestamp with time zone,
    expires_at timestamp with time zone,
    approved_at timestamp with time zone,
    approved_by text,
    approved_hash bytea,
    applied_at timestamp with time zone,
    error text DEFAULT ''::text NOT NULL,
    note text DEFAULT ''::text NOT NULL,
    progress_step text DEFAULT ''::text NOT NULL,
    progress_done integer DEFAULT 0 NOT NULL,
    progress_total integer DEFAULT 0 NOT NULL,
    summary jsonb,
    readback jsonb,
    CONSTRAINT rollbacks_check CHECK (((approved_at IS NULL) = (approved_by IS NULL))),
    CONSTRAINT rollbacks_check1 CHECK (((approved_at IS NULL) = (approved_hash IS NULL))),
    CONSTRAINT rollbacks_check2 CHECK (((approved_hash IS NULL) OR (approved_hash = hash))),
    CONSTRAINT rollbacks_check3 CHECK (((state <> ALL (ARRAY['ready'::text, 'approved'::text, 'applying'::text, 'stopped'::text, 'applied'::text])) OR (hash IS NOT NULL))),
    CONSTRAINT rollbacks_check4 CHECK (((state <> ALL (ARRAY['approved'::text, 'applying'::text, 'stopped'::text, 'applied'::text])) OR (approved_at IS NOT NULL))),
    CONSTRAINT rollbacks_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT rollbacks_state_check CHECK ((state = ANY (ARRAY['planning'::text, 'ready'::text, 'approved'::text, 'applying'::text, 'stopped'::text, 'applied'::text, 'failed'::text, 'expired'::text, 'cancelled'::text])))
);

ALTER TABLE public.rollbacks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.rollbacks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.sessions (
    token_hash bytea NOT NULL,
    user_id bigint NOT NULL,
    data bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE public.snapshots (
    integration text NOT NULL,
    seq bigint NOT NULL,
    taken_at timestamp with time zone NOT NULL,
    manifest_key text NOT NULL,
    manifest_version text NOT NULL,
    manifest_hash bytea NOT NULL,
    prev_hash bytea NOT NULL,
    body_key text NOT NULL,
    body_version text NOT NULL,
    body_hash bytea NOT NULL,
    body_size bigint NOT NULL,
    entities bigint NOT NULL,
    last_mutation bigint NOT NULL,
    audit_pos bigint NOT NULL,
    audit_hash bytea NOT NULL,
    retain_until timestamp with time zone NOT NULL,
    verified_at timestamp with time zone,
    verify_error text DEFAULT ''::text NOT NULL,
    CONSTRAINT snapshots_body_hash_check CHECK ((octet_length(body_hash) = 32)),
    CONSTRAINT snapshots_manifest_hash_check CHECK ((octet_length(manifest_hash) = 32)),
    CONSTRAINT snapshots_seq_check CHECK ((seq >= 1))
);

CREATE TABLE public.tombstones (
    integration text NOT NULL,
    natural_key bytea NOT NULL,
    rollback_id bigint NOT NULL,
    mutation_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT tombstones_natural_key_check CHECK ((octet_length(natural_key) = 32))
);

CREATE TABLE public.users (
    id bigint NOT NULL,
    name text NOT NULL,
    display text NOT NULL,
    role text NOT NULL,
    password_hash text NOT NULL,
    lang text DEFAULT ''::text NOT NULL,
    theme text DEFAULT ''::text NOT NULL,
    keys boolean DEFAULT true NOT NULL,
    disabled_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT users_name_check CHECK (((name = lower(name)) AND (name <> ''::text))),
    CONSTRAINT users_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'oncall'::text, 'planner'::text, 'admin'::text])))
);

ALTER TABLE public.users ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.users_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY public.acknowledgements
    ADD CONSTRAINT acknowledgements_pkey PRIMARY KEY (integration, signal);

ALTER TABLE ONLY public.agent_tokens
    ADD CONSTRAINT agent_tokens_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY public.audit_links
    ADD CONSTRAINT audit_links_pkey PRIMARY KEY (pos);

ALTER TABLE ONLY public.audit_links
    ADD CONSTRAINT audit_links_record_id_key UNIQUE (record_id);

ALTER TABLE ONLY public.audit_records
    ADD CONSTRAINT audit_records_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.counters
    ADD CONSTRAINT counters_pkey PRIMARY KEY (integration, bucket, name, shard);

ALTER TABLE ONLY public.decisions
    ADD CONSTRAINT decisions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.entities
    ADD CONSTRAINT entities_pkey PRIMARY KEY (integration, type, id);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_integration_account_event_id_key UNIQUE (integration, account, event_id);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY public.hash_pairs
    ADD CONSTRAINT hash_pairs_first_mutation_second_mutation_key UNIQUE (first_mutation, second_mutation);

ALTER TABLE ONLY public.hash_pairs
    ADD CONSTRAINT hash_pairs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.integrations
    ADD CONSTRAINT integrations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.mutations
    ADD CONSTRAINT mutations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.quarantine_items
    ADD CONSTRAINT quarantine_items_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_mutation_id_key UNIQUE (mutation_id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_pkey PRIMARY KEY (key);

ALTER TABLE ONLY public.rollback_rows
    ADD CONSTRAINT rollback_rows_pkey PRIMARY KEY (rollback_id, "row");

ALTER TABLE ONLY public.rollback_suspects
    ADD CONSTRAINT rollback_suspects_pkey PRIMARY KEY (rollback_id, mutation_id);

ALTER TABLE ONLY public.rollbacks
    ADD CONSTRAINT rollbacks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (token_hash);

ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (integration, seq);

ALTER TABLE ONLY public.tombstones
    ADD CONSTRAINT tombstones_pkey PRIMARY KEY (integration, natural_key);

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_name_key UNIQUE (name);

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);

CREATE INDEX audit_by_actor ON public.audit_records USING btree (actor, id);

CREATE INDEX audit_by_integration ON public.audit_records USING btree (integration, id);

CREATE INDEX audit_by_object ON public.audit_records USING btree (object, id);

CREATE INDEX decisions_by_event ON public.decisions USING btree (integration, account, event_id, id);

CREATE INDEX decisions_list ON public.decisions USING btree (integration, decision, id);

CREATE INDEX deliveries_by_event ON public.deliveries USING btree (event_seq, id);

CREATE INDEX entities_by_id ON public.entities USING btree (integration, id text_pattern_ops);

CREATE INDEX entities_by_subject ON public.entities USING btree (integration, subject text_pattern_ops, id);

CREATE INDEX events_by_state ON public.events USING btree (integration, state, seq);

CREATE INDEX hash_pairs_by_second ON public.hash_pairs USING btree (integration, second_mutation);

CREATE INDEX hash_pairs_list ON public.hash_pairs USING btree (integration, state, id);

CREATE INDEX mutations_by_content ON public.mutations USING btree (integration, fingerprint, id) WHERE forwarded;

CREATE INDEX mutations_by_entity ON public.mutations USING btree (integration, entity_type, entity_id, id);

CREATE INDEX mutations_by_event ON public.mutations USING btree (integration, account, event_id, id);

CREATE INDEX mutations_by_seq ON public.mutations USING btree (integration, id);

CREATE INDEX quarantine_by_entity ON public.quarantine_items USING btree (integration, entity_id, id);

CREATE INDEX quarantine_by_event ON public.quarantine_items USING btree (integration, event_id, id);

CREATE INDEX quarantine_by_reason ON public.quarantine_items USING btree (integration, state, reason, id);

CREATE INDEX quarantine_by_subject ON public.quarantine_items USING btree (integration, subject, id);

CREATE INDEX quarantine_list ON public.quarantine_items USING btree (integration, state, id);

CREATE INDEX quarantine_open ON public.quarantine_items USING btree (integration, id) WHERE (state = ANY (ARRAY['open'::text, 'releasing'::text]));

CREATE INDEX reservations_by_natural ON public.reservations USING btree (natural_key);

CREATE INDEX reservations_by_ref ON public.reservations USING btree (integration, external_ref) WHERE (external_ref <> ''::text);

CREATE INDEX reservations_in_flight ON public.reservations USING btree (integration, reserved_at) WHERE (state = 'in_flight'::text);

CREATE INDEX reservations_uncertain ON public.reservations USING btree (integration, reserved_at) WHERE (state = ANY (ARRAY['unknown'::text, 'manual'::text]));

CREATE INDEX rollbacks_list ON public.rollbacks USING btree (integration, id);

CREATE INDEX rollbacks_live ON public.rollbacks USING btree (id) WHERE (state = ANY (ARRAY['planning'::text, 'approved'::text, 'applying'::text]));

CREATE INDEX sessions_by_expiry ON public.sessions USING btree (expires_at);

CREATE INDEX sessions_by_user ON public.sessions USING btree (user_id);

CREATE INDEX snapshots_by_time ON public.snapshots USING btree (integration, taken_at);

CREATE INDEX snapshots_damaged ON public.snapshots USING btree (integration, seq) WHERE (verify_error <> ''::text);

CREATE TRIGGER audit_links_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.audit_links FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER audit_records_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.audit_records FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

ALTER TABLE ONLY public.acknowledgements
    ADD CONSTRAINT acknowledgements_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.agent_tokens
    ADD CONSTRAINT agent_tokens_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.audit_links
    ADD CONSTRAINT audit_links_record_id_fkey FOREIGN KEY (record_id) REFERENCES public.audit_records(id);

ALTER TABLE ONLY public.counters
    ADD CONSTRAINT counters_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.decisions
    ADD CONSTRAINT decisions_delivery_id_fkey FOREIGN KEY (delivery_id) REFERENCES public.deliveries(id);

ALTER TABLE ONLY public.decisions
    ADD CONSTRAINT decisions_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.decisions
    ADD CONSTRAINT decisions_mutation_id_fkey FOREIGN KEY (mutation_id) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_event_seq_fkey FOREIGN KEY (event_seq) REFERENCES public.events(seq);

ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.entities
    ADD CONSTRAINT entities_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.hash_pairs
    ADD CONSTRAINT hash_pairs_first_mutation_fkey FOREIGN KEY (first_mutation) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.hash_pairs
    ADD CONSTRAINT hash_pairs_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.hash_pairs
    ADD CONSTRAINT hash_pairs_second_mutation_fkey FOREIGN KEY (second_mutation) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.mutations
    ADD CONSTRAINT mutations_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.quarantine_items
    ADD CONSTRAINT quarantine_items_delivery_id_fkey FOREIGN KEY (delivery_id) REFERENCES public.deliveries(id);

ALTER TABLE ONLY public.quarantine_items
    ADD CONSTRAINT quarantine_items_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.quarantine_items
    ADD CONSTRAINT quarantine_items_mutation_id_fkey FOREIGN KEY (mutation_id) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.quarantine_items
    ADD CONSTRAINT quarantine_items_released_mutation_fkey FOREIGN KEY (released_mutation) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.quarantine_items
    ADD CONSTRAINT quarantine_items_twin_mutation_fkey FOREIGN KEY (twin_mutation) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_mutation_id_fkey FOREIGN KEY (mutation_id) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.rollback_rows
    ADD CONSTRAINT rollback_rows_mutation_id_fkey FOREIGN KEY (mutation_id) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.rollback_rows
    ADD CONSTRAINT rollback_rows_rollback_id_fkey FOREIGN KEY (rollback_id) REFERENCES public.rollbacks(id);

ALTER TABLE ONLY public.rollback_suspects
    ADD CONSTRAINT rollback_suspects_mutation_id_fkey FOREIGN KEY (mutation_id) REFERENCES public.mutations(id);

ALTER TABLE ONLY public.rollback_suspects
    ADD CONSTRAINT rollback_suspects_pair_id_fkey FOREIGN KEY (pair_id) REFERENCES public.hash_pairs(id);

ALTER TABLE ONLY public.rollback_suspects
    ADD CONSTRAINT rollback_suspects_rollback_id_fkey FOREIGN KEY (rollback_id) REFERENCES public.rollbacks(id);

ALTER TABLE ONLY public.rollbacks
    ADD CONSTRAINT rollbacks_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.rollbacks
    ADD CONSTRAINT rollbacks_integration_snapshot_seq_fkey FOREIGN KEY (integration, snapshot_seq) REFERENCES public.snapshots(integration, seq);

ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.tombstones
    ADD CONSTRAINT tombstones_integration_fkey FOREIGN KEY (integration) REFERENCES public.integrations(id);

ALTER TABLE ONLY public.tombstones
    ADD CONSTRAINT tombstones_mutation_id_fkey FOREIGN KEY (mutation_id) REFERENCES public.mutations(id);
