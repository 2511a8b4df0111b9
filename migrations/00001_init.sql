-- The first schema: integrations, inbox, admission, projection, quarantine,
-- hash pairs, snapshots, rollbacks, people and the audit record.
-- Time is always a parameter: no column has a clock as its default.

-- +goose Up
create table integrations (
  id           text primary key check (id ~ '^[a-z][a-z0-9_-]{0,62}$'),
  name         text not null,
  mode         text not null check (mode in ('off', 'shadow', 'enforce')),
  frozen       boolean not null default false,
  max_skew     interval not null,
  pairs_until  bigint not null default 0,
  pairs_at     timestamptz,
  version      bigint not null default 1,
  created_at   timestamptz not null,
  updated_at   timestamptz not null,
  updated_by   text not null
);

-- One row for each event that a provider has; deliveries holds its arrivals.
create table events (
  seq          bigint generated always as identity primary key,
  integration  text not null references integrations (id),
  account      text not null,
  event_id     text not null,
  kind         text not null default '',
  occurred_at  timestamptz,
  occurred_raw text not null default '',
  received_at  timestamptz not null,
  fingerprint  bytea,
  payload      bytea,
  state        text not null check (state in ('known', 'stored', 'applied', 'quarantined', 'rejected')),
  run          text,
  claimed_at   timestamptz,
  closed_at    timestamptz,
  rollback_id  bigint,
  unique (integration, account, event_id),
  check (fingerprint is null or octet_length(fingerprint) = 32),
  check ((run is null) = (claimed_at is null)),
  check (closed_at is null or run is not null)
);
create index events_by_state on events (integration, state, seq);

create table deliveries (
  id           bigint generated always as identity primary key,
  integration  text not null references integrations (id),
  event_seq    bigint references events (seq),
  received_at  timestamptz not null,
  payload      bytea not null,
  payload_hash bytea not null check (octet_length(payload_hash) = 32),
  mode         text not null check (mode in ('off', 'shadow', 'enforce')),
  disposition  text not null check (disposition in ('stored', 'duplicate', 'quarantined')),
  reason       text not null default '',
  handed_on    boolean not null
);
create index deliveries_by_event on deliveries (event_seq, id);

-- Every mutation an agent (or a rollback) ever asked for, with what was decided.
create table mutations (
  id           bigint generated always as identity primary key,
  integration  text not null references integrations (id),
  natural_key  bytea check (octet_length(natural_key) = 32),
  account      text not null,
  event_id     text not null,
  effect       text not null,
  occurred_raw text not null default '',
  agent        text not null,
  run          text not null,
  op           text not null check (op in ('create', 'update', 'delete')),
  entity_type  text not null,
  entity_id    text not null default '',
  subject      text not null,
  body         bytea not null,
  fingerprint  bytea not null check (octet_length(fingerprint) = 32),
  basis        jsonb,
  evidence     jsonb,
  rollback_id  bigint,
  rollback_row integer,
  received_at  timestamptz not null,
  mode         text not null check (mode in ('off', 'shadow', 'enforce')),
  decision     text not null check (decision in ('forward', 'drop', 'quarantine')),
  reason       text not null default '',
  forwarded    boolean not null,
  check (decision = 'forward' or reason <> ''),
  check ((rollback_id is null) = (rollback_row is null))
);
create index mutations_by_event on mutations (integration, account, event_id, id);
create index mutations_by_entity on mutations (integration, entity_type, entity_id, id);
create index mutations_by_content on mutations (integration, fingerprint, id) where forwarded;
create index mutations_by_seq on mutations (integration, id);

-- The narrow key table: uniqueness, state and fence of every act.
create table reservations (
  key          bytea primary key check (octet_length(key) = 32),
  integration  text not null references integrations (id),
  natural_key  bytea not null check (octet_length(natural_key) = 32),
  mutation_id  bigint not null unique references mutations (id),
  state        text not null check (state in ('in_flight', 'committed', 'refused', 'unknown', 'manual', 'rolled_back')),
  attempt      integer not null check (attempt >= 1),
  fence        bigint not null check (fence >= 1),
  version      bigint not null default 1,
  reserved_at  timestamptz not null,
  settled_at   timestamptz,
  settled_by   text,
  external_ref text not null default '',
  detail       text not null default '',
  last_look_at timestamptz,
  check ((settled_at is null) = (settled_by is null)),
  check ((state in ('in_flight', 'unknown', 'manual')) = (settled_at is null))
);
create index reservations_in_flight on reservations (integration, reserved_at) where state = 'in_flight';
create index reservations_uncertain on reservations (integration, reserved_at) where state in ('unknown', 'manual');
create index reservations_by_ref on reservations (integration, external_ref) where external_ref <> '';
create index reservations_by_natural on reservations (natural_key);

-- Keys that a rollback closed. A redelivery is held, never applied again.
create table tombstones (
  integration  text not null references integrations (id),
  natural_key  bytea not null check (octet_length(natural_key) = 32),
  rollback_id  bigint not null,
  mutation_id  bigint not null references mutations (id),
  at           timestamptz not null,
  primary key (integration, natural_key)
);

-- The projection: our versioned record of each entity.
create table entities (
  integration   text not null references integrations (id),
  type          text not null,
  id            text not null,
  version       bigint not null,
  target_version bigint not null default 0,
  state         bytea not null,
  deleted       boolean not null default false,
  subject       text not null default '',
  last_mutation bigint,
  updated_at    timestamptz not null,
  primary key (integration, type, id)
);
create index entities_by_id on entities (integration, id text_pattern_ops);
create index entities_by_subject on entities (integration, subject text_pattern_ops, id);

-- Drops and holds, each with its reason, in every mode that decides.
create table decisions (
  id           bigint generated always as identity primary key,
  integration  text not null references integrations (id),
  at           timestamptz not null,
  kind         text not null check (kind in ('delivery', 'mutation')),
  mode         text not null check (mode in ('shadow', 'enforce', 'off')),
  decision     text not null check (decision in ('drop', 'quarantine')),
  reason       text not null check (reason <> ''),
  detail       text not null default '',
  enforced     boolean not null,
  account      text not null,
  event_id     text not null,
  effect       text not null default '',
  run          text not null default '',
  agent        text not null default '',
  key          bytea,
  mutation_id  bigint references mutations (id),
  delivery_id  bigint references deliveries (id),
  check ((kind = 'mutation') = (mutation_id is not null)),
  check ((kind = 'delivery') = (delivery_id is not null))
);
create index decisions_list on decisions (integration, decision, id);
create index decisions_by_event on decisions (integration, account, event_id, id);

create table quarantine_items (
  id           bigint generated always as identity primary key,
  integration  text not null references integrations (id),
  kind         text not null check (kind in ('delivery', 'mutation')),
  mutation_id  bigint references mutations (id),
  delivery_id  bigint references deliveries (id),
  reason       text not null,
  detail       text not null default '',
  subject      text not null default '',
  event_id     text not null default '',
  entity_id    text not null default '',
  twin_mutation bigint references mutations (id),
  rollback_id  bigint,
  fingerprint  bytea,
  state        text not null check (state in ('open', 'releasing', 'released', 'rejected', 'superseded')),
  version      bigint not null default 1,
  opened_at    timestamptz not null,
  decided_at   timestamptz,
  decided_by   text,
  note         text not null default '',
  release_at   timestamptz,
  entity_version bigint,
  claimed_until timestamptz,
  released_mutation bigint references mutations (id),
  outcome      text not null default '',
  check ((decided_at is null) = (decided_by is null)),
  check ((state = 'open') = (decided_at is null)),
  check (state <> 'releasing' or release_at is not null),
  check (claimed_until is null or state <> 'open'),
  check ((kind = 'mutation') = (mutation_id is not null)),
  check ((kind = 'delivery') = (delivery_id is not null))
);
create index quarantine_open on quarantine_items (integration, id) where state in ('open', 'releasing');
create index quarantine_list on quarantine_items (integration, state, id);
create index quarantine_by_reason on quarantine_items (integration, state, reason, id);
create index quarantine_by_subject on quarantine_items (integration, subject, id);
create index quarantine_by_event on quarantine_items (integration, event_id, id);
create index quarantine_by_entity on quarantine_items (integration, entity_id, id);

create table hash_pairs (
  id           bigint generated always as identity primary key,
  integration  text not null references integrations (id),
  first_mutation  bigint not null references mutations (id),
  second_mutation bigint not null references mutations (id),
  fingerprint  bytea not null,
  subject      text not null,
  found_at     timestamptz not null,
  state        text not null check (state in ('open', 'duplicate', 'distinct', 'undone')),
  version      bigint not null default 1,
  decided_at   timestamptz,
  decided_by   text,
  note         text not null default '',
  rollback_id  bigint,
  unique (first_mutation, second_mutation),
  check (first_mutation < second_mutation),
  check ((decided_at is null) = (decided_by is null)),
  check ((state = 'open') = (decided_at is null))
);
create index hash_pairs_list on hash_pairs (integration, state, id);
create index hash_pairs_by_second on hash_pairs (integration, second_mutation);

-- Counters are kept as things happen, sharded so that writers do not queue.
create table counters (
  integration  text not null references integrations (id),
  bucket       timestamptz not null,
  name         text not null,
  shard        smallint not null,
  n            bigint not null,
  primary key (integration, bucket, name, shard)
);

create table acknowledgements (
  integration  text not null references integrations (id),
  signal       text not null,
  upto         bigint not null,
  at           timestamptz not null,
  by           text not null,
  note         text not null default '',
  primary key (integration, signal)
);

-- The audit record: rows are only ever added; links chain them in order.
create table audit_records (
  id           bigint generated always as identity primary key,
  at           timestamptz not null,
  actor_kind   text not null check (actor_kind in ('person', 'agent', 'job')),
  actor        text not null,
  integration  text not null default '',
  action       text not null,
  object       text not null default '',
  detail       bytea not null
);
create index audit_by_integration on audit_records (integration, id);
create index audit_by_object on audit_records (object, id);
create index audit_by_actor on audit_records (actor, id);
create table audit_links (
  pos          bigint primary key check (pos >= 1),
  record_id    bigint not null unique references audit_records (id),
  hash         bytea not null check (octet_length(hash) = 32)
);
-- +goose StatementBegin
create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'the audit record is append-only' using errcode = 'insufficient_privilege';
end $$;
-- +goose StatementEnd
create trigger audit_records_append_only before update or delete or truncate on audit_records
  for each statement execute function refuse_change();
create trigger audit_links_append_only before update or delete or truncate on audit_links
  for each statement execute function refuse_change();

create table snapshots (
  integration   text not null references integrations (id),
  seq           bigint not null check (seq >= 1),
  taken_at      timestamptz not null,
  manifest_key  text not null,
  manifest_version text not null,
  manifest_hash bytea not null check (octet_length(manifest_hash) = 32),
  prev_hash     bytea not null,
  body_key      text not null,
  body_version  text not null,
  body_hash     bytea not null check (octet_length(body_hash) = 32),
  body_size     bigint not null,
  entities      bigint not null,
  last_mutation bigint not null,
  audit_pos     bigint not null,
  audit_hash    bytea not null,
  retain_until  timestamptz not null,
  verified_at   timestamptz,
  verify_error  text not null default '',
  primary key (integration, seq)
);
create index snapshots_by_time on snapshots (integration, taken_at);
create index snapshots_damaged on snapshots (integration, seq) where verify_error <> '';

create table rollbacks (
  id           bigint generated always as identity primary key,
  integration  text not null references integrations (id),
  snapshot_seq bigint not null,
  state        text not null check (state in ('planning', 'ready', 'approved', 'applying', 'stopped', 'applied', 'failed', 'expired', 'cancelled')),
  version      bigint not null default 1,
  hash         bytea check (octet_length(hash) = 32),
  created_at   timestamptz not null,
  created_by   text not null,
  planned_at   timestamptz,
  expires_at   timestamptz,
  approved_at  timestamptz,
  approved_by  text,
  approved_hash bytea,
  applied_at   timestamptz,
  error        text not null default '',
  note         text not null default '',
  progress_step text not null default '',
  progress_done integer not null default 0,
  progress_total integer not null default 0,
  summary      jsonb,
  readback     jsonb,
  foreign key (integration, snapshot_seq) references snapshots (integration, seq),
  check ((approved_at is null) = (approved_by is null)),
  check ((approved_at is null) = (approved_hash is null)),
  check (approved_hash is null or approved_hash = hash),
  check (state not in ('ready', 'approved', 'applying', 'stopped', 'applied') or hash is not null),
  check (state not in ('approved', 'applying', 'stopped', 'applied') or approved_at is not null)
);
create index rollbacks_list on rollbacks (integration, id);
create index rollbacks_live on rollbacks (id) where state in ('planning', 'approved', 'applying');

create table rollback_suspects (
  rollback_id  bigint not null references rollbacks (id),
  mutation_id  bigint not null references mutations (id),
  pair_id      bigint references hash_pairs (id),
  source       text not null check (source in ('pair', 'range', 'run', 'selection')),
  primary key (rollback_id, mutation_id)
);

create table rollback_rows (
  rollback_id  bigint not null references rollbacks (id),
  row          integer not null check (row >= 1),
  kind         text not null check (kind in ('compensation', 'decision', 'outside', 'residue')),
  group_key    text not null,
  op           text not null check (op in ('create', 'update', 'delete', 'none')),
  entity_type  text not null,
  entity_id    text not null,
  subject      text not null default '',
  body         bytea not null,
  base         bytea,
  expected     bytea,
  live         bytea,
  live_version bigint not null,
  live_by      text not null default '',
  live_at      timestamptz,
  choice       text not null check (choice in ('restore', 'keep')),
  undoes       bigint[] not null,
  contaminated bigint[] not null default '{}',
  state        text not null check (state in ('planned', 'sending', 'applied', 'verified', 'failed', 'skipped')),
  mutation_id  bigint references mutations (id),
  detail       text not null default '',
  done_at      timestamptz,
  primary key (rollback_id, row)
);

-- People, their sessions, and agents' tokens. Only digests of tokens are kept.
create table users (
  id            bigint generated always as identity primary key,
  name          text unique not null check (name = lower(name) and name <> ''),
  display       text not null,
  role          text not null check (role in ('viewer', 'oncall', 'planner', 'admin')),
  password_hash text not null,
  lang          text not null default '',
  theme         text not null default '',
  keys          boolean not null default true,
  disabled_at   timestamptz,
  created_at    timestamptz not null
);
create table sessions (
  token_hash   bytea primary key,
  user_id      bigint not null references users (id) on delete cascade,
  data         bytea not null,
  created_at   timestamptz not null,
  seen_at      timestamptz not null,
  expires_at   timestamptz not null
);
create index sessions_by_user on sessions (user_id);
create index sessions_by_expiry on sessions (expires_at);
create table agent_tokens (
  token_hash   bytea primary key check (octet_length(token_hash) = 32),
  integration  text not null references integrations (id),
  agent        text not null,
  created_at   timestamptz not null,
  created_by   text not null,
  revoked_at   timestamptz
);
